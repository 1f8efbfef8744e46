package rollcall.interop;

import java.io.IOException;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import org.apache.rocketmq.acl.common.AclUtils;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.remoting.RPCHook;

/** A file of lines that several threads append to; a line is handed to the kernel before {@code line} returns. */
final class Ledger implements AutoCloseable {
    private final PrintWriter out;

    Ledger(Path file) throws IOException {
        out = new PrintWriter(
            Files.newBufferedWriter(file, StandardCharsets.UTF_8, StandardOpenOption.CREATE, StandardOpenOption.APPEND));
    }

    synchronized void line(String text) {
        out.print(text);
        out.print('\n');
        out.flush();
    }

    @Override
    public synchronized void close() {
        out.close();
    }

    /** Signs with the access key of the process's home, as mqadmin does; null without one. */
    static RPCHook signer() {
        return AclUtils.getAclRPCHook(System.getProperty("rocketmq.home.dir") + MixAll.ACL_CONF_TOOLS_FILE);
    }

    /** The body that belongs to a key: its text again and again. */
    static byte[] body(String key, int bytes) {
        byte[] unit = key.getBytes(StandardCharsets.US_ASCII);
        byte[] body = new byte[bytes];
        for (int index = 0; index < bytes; index++) {
            body[index] = unit[index % unit.length];
        }
        return body;
    }

    static String sha256(byte[] data) {
        try {
            StringBuilder hex = new StringBuilder(64);
            for (byte value : MessageDigest.getInstance("SHA-256").digest(data)) {
                hex.append(Character.forDigit(value >> 4 & 15, 16)).append(Character.forDigit(value & 15, 16));
            }
            return hex.toString();
        } catch (NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }
}
