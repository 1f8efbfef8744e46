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
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * A file of lines that several threads append to; a line is handed to the kernel before {@code line} returns.
 *
 * A key PRODUCER-KIND-RUN-NUMBER says what becomes of its message (tests/interop_java/keys.py); any other key is plain.
 */
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

    /** Key, SHA-256, CLOCK_MONOTONIC in ns, topic, queue and offset, refusals before, 1: taken or 0: refused. */
    void consumed(MessageExt message, MessageQueue queue, boolean taken) {
        line(message.getKeys() + "\t" + sha256(message.getBody()) + "\t" + System.nanoTime() + "\t" + queue.getTopic()
            + "\t" + queue.getQueueId() + "\t" + message.getQueueOffset() + "\t" + message.getReconsumeTimes() + "\t"
            + (taken ? "1" : "0"));
    }

    @Override
    public synchronized void close() {
        out.close();
    }

    /** Signs with the access key of the process's home, as mqadmin does; null without one. */
    static RPCHook signer() {
        return AclUtils.getAclRPCHook(System.getProperty("rocketmq.home.dir") + MixAll.ACL_CONF_TOOLS_FILE);
    }

    static String kindOf(String key) {
        String[] parts = key.split("-");
        return parts.length == 4 ? parts[1] : "plain";
    }

    /** Whether a consumer refuses it that was given back so often before. */
    static boolean isRefused(String key, int times) {
        String kind = kindOf(key);
        return kind.equals("dead") || kind.startsWith("again") && times < Integer.parseInt(kind.substring(5));
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
