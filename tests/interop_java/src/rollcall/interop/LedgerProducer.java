package rollcall.interop;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * RocketMQ's producer with its own defaults, which writes down what was acknowledged.
 *
 * <pre>LedgerProducer NAMESRV TOPIC DIRECTORY THREADS BODY_BYTES PAUSE_MS SECONDS_MAX ROUTE_POLL_MS</pre>
 *
 * ROUTE_POLL_MS 0 leaves the client's own 30 s. A line in DIRECTORY/ledger.jsonl means SEND_OK; any other outcome is
 * counted in DIRECTORY/producer.json and never sent again under the same key by us. ackedAtNs is CLOCK_MONOTONIC.
 * SIGTERM ends it after the sends under way.
 */
public final class LedgerProducer {
    private static final int REFUSED_PAUSE_MS = 10;
    private static final int STOP_MS_MAX = 10_000;

    private final DefaultMQProducer producer;
    private final String topic;
    private final Path directory;
    private final int bodyBytes;
    private final int pauseMs;
    private final long endNs;
    private final String prefix = UUID.randomUUID().toString().replace("-", "").substring(0, 12);
    private final AtomicLong numbers = new AtomicLong();
    private final AtomicLong acked = new AtomicLong();
    private final AtomicLong unsure = new AtomicLong();
    private final AtomicLong failed = new AtomicLong();
    private final AtomicBoolean stopping = new AtomicBoolean();

    private LedgerProducer(String[] arguments) {
        producer = new DefaultMQProducer("rollcall-interop-producer", Ledger.signer());
        producer.setNamesrvAddr(arguments[0]);
        topic = arguments[1];
        directory = Path.of(arguments[2]);
        bodyBytes = Integer.parseInt(arguments[4]);
        pauseMs = Integer.parseInt(arguments[5]);
        endNs = System.nanoTime() + Long.parseLong(arguments[6]) * 1_000_000_000L;
        int routePollMs = Integer.parseInt(arguments[7]);
        if (routePollMs > 0) {
            producer.setPollNameServerInterval(routePollMs);
        }
    }

    public static void main(String[] arguments) throws Exception {
        LedgerProducer program = new LedgerProducer(arguments);
        program.run(Integer.parseInt(arguments[3]));
        if (!program.stopping.get()) {
            System.exit(0); // While stopping, exit would wait for the hook that waits for this thread.
        }
    }

    private void run(int threads) throws Exception {
        producer.start();
        Thread[] workers = new Thread[threads];
        try (Ledger ledger = new Ledger(directory.resolve("ledger.jsonl"))) {
            for (int index = 0; index < threads; index++) {
                workers[index] = new Thread(() -> work(ledger), "send-" + index);
                workers[index].start();
            }
            Thread main = Thread.currentThread();
            Runtime.getRuntime().addShutdownHook(new Thread(() -> {
                stopping.set(true);
                try {
                    main.join(STOP_MS_MAX);
                } catch (InterruptedException ended) {
                    Thread.currentThread().interrupt();
                }
            }));
            while (!done()) {
                Thread.sleep(200);
                count();
            }
            for (Thread worker : workers) {
                worker.join(STOP_MS_MAX);
            }
            count();
        }
    }

    private boolean done() {
        return stopping.get() || System.nanoTime() - endNs > 0;
    }

    private void work(Ledger ledger) {
        while (!done()) {
            String key = prefix + String.format("%012x", numbers.incrementAndGet());
            byte[] body = Ledger.body(key, bodyBytes);
            try {
                SendResult result = producer.send(new Message(topic, "", key, body));
                if (result.getSendStatus() == SendStatus.SEND_OK) {
                    long ackedAtNs = System.nanoTime();
                    ledger.line(line(key, body, result, ackedAtNs));
                    acked.incrementAndGet();
                } else {
                    unsure.incrementAndGet();
                }
                if (pauseMs > 0) {
                    Thread.sleep(pauseMs);
                }
            } catch (Exception refused) {
                failed.incrementAndGet();
                try {
                    Thread.sleep(REFUSED_PAUSE_MS);
                } catch (InterruptedException ended) {
                    return;
                }
            }
        }
    }

    private String line(String key, byte[] body, SendResult result, long ackedAtNs) {
        String id = result.getOffsetMsgId();
        return "{\"key\":\"" + key + "\",\"set\":\"" + result.getMessageQueue().getBrokerName() + "\",\"topic\":\"" + topic
            + "\",\"queueId\":" + result.getMessageQueue().getQueueId() + ",\"queueOffset\":" + result.getQueueOffset()
            + ",\"physicalOffset\":" + Long.parseUnsignedLong(id.substring(id.length() - 16), 16)
            + ",\"bodySha256\":\"" + Ledger.sha256(body) + "\",\"ackedAtNs\":" + ackedAtNs + "}";
    }

    private void count() throws Exception {
        Path file = directory.resolve("producer.json");
        Path temporary = directory.resolve("producer.json.tmp");
        Files.writeString(temporary,
            "{\"acked\":" + acked + ",\"unsure\":" + unsure + ",\"failed\":" + failed + "}");
        Files.move(temporary, file, StandardCopyOption.ATOMIC_MOVE);
    }
}
