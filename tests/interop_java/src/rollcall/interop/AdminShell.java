package rollcall.interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * mqadmin many times in one process: each line of standard input is one command line, its words separated by tabs.
 *
 * An empty line is no word at all: mqadmin lists its commands then. After what a command printed comes a line with the single character U+0004.
 */
public final class AdminShell {
    private AdminShell() {
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.clearProperty(MixAll.NAMESRV_ADDR_PROPERTY);
            Commands.forget();
            MQAdminStartup.main0(line.isEmpty() ? new String[0] : line.split("\t"), null);
            System.err.flush();
            System.out.print("\n\u0004\n");
            System.out.flush();
        }
        System.exit(0);
    }

    /** Commands keep clients that they have shut down; each run gets new ones, as each process would. */
    private static final class Commands extends MQAdminStartup {
        static void forget() {
            SUB_COMMANDS.clear();
        }
    }
}
