package rollcall.interop;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.impl.producer.TopicPublishInfo;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;

/**
 * RocketMQ's producer with its own defaults, which writes down what was acknowledged.
 *
 * <pre>LedgerProducer NAMESRV TOPIC DIRECTORY THREADS BODY_BYTES PAUSE_MS SECONDS_MAX ROUTE_POLL_MS [ORDERED_TOPIC]</pre>
 *
 * With ORDERED_TOPIC keys are those of tests/interop_java/keys.py, some messages have a delay level, and one thread more
 * sends to that topic by sharding keys, one message after the other.
 * ROUTE_POLL_MS 0 leaves the client's own 30 s. A line in DIRECTORY/ledger.jsonl means SEND_OK; any other outcome is
 * counted in DIRECTORY/producer.json and never sent again under the same key by us. ackedAtNs is CLOCK_MONOTONIC.
 * SIGTERM ends it after the sends under way.
 */
public final class LedgerProducer {
    private static final int REFUSED_PAUSE_MS = 10;
    private static final int STOP_MS_MAX = 10_000;
    private static final int KINDS_EACH = 40;
    private static final int SHARDS = 8;

    private final DefaultMQProducer producer;
    private final String topic;
    private final Path directory;
    private final int bodyBytes;
    private final int pauseMs;
    private final long endNs;
    private final String orderedTopic;
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
        orderedTopic = arguments.length > 8 ? arguments[8] : null;
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
        if (orderedTopic != null) {
            awaitRoute(topic);
            awaitRoute(orderedTopic);
        }
        Thread[] workers = new Thread[orderedTopic == null ? threads : threads + 1];
        try (Ledger ledger = new Ledger(directory.resolve("ledger.jsonl"))) {
            for (int index = 0; index < workers.length; index++) {
                boolean isOrdered = index == threads;
                workers[index] = new Thread(() -> work(ledger, isOrdered), "send-" + index);
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

    /**
     * A first send that waits for the client's own lock for 3 s, on a busy machine, goes by the route of TBW102, to four
     * queues, and the next one of that sharding key elsewhere.
     */
    private void awaitRoute(String wanted) throws InterruptedException {
        while (!done()) {
            try {
                producer.getDefaultMQProducerImpl().getMqClientFactory().updateTopicRouteInfoFromNameServer(wanted);
                TopicPublishInfo known = producer.getDefaultMQProducerImpl().getTopicPublishInfoTable().get(wanted);
                if (known != null && known.ok()) {
                    return;
                }
            } catch (IllegalStateException refused) {
                failed.incrementAndGet();
            }
            Thread.sleep(200);
        }
    }

    private boolean done() {
        return stopping.get() || System.nanoTime() - endNs > 0;
    }

    private void work(Ledger ledger, boolean isOrdered) {
        while (!done()) {
            try {
                Message message = isOrdered ? next(orderedTopic) : next(topic);
                SendResult result = isOrdered
                    ? producer.send(message, new SelectMessageQueueByHash(), Ledger.kindOf(message.getKeys()))
                    : producer.send(message);
                if (result.getSendStatus() == SendStatus.SEND_OK) {
                    long ackedAtNs = System.nanoTime();
                    ledger.line(line(message, result, ackedAtNs));
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

    private Message next(String wanted) {
        long number = numbers.incrementAndGet();
        String digits = String.format("%012x", number);
        if (orderedTopic == null) {
            return new Message(wanted, "", prefix + digits, Ledger.body(prefix + digits, bodyBytes));
        }
        String kind = wanted.equals(orderedTopic) ? "shard" + number % SHARDS : kind(number);
        String key = "java-" + kind + "-" + prefix + "-" + digits;
        Message message = new Message(wanted, number % 2 == 0 ? "even" : "odd", key, Ledger.body(key, bodyBytes));
        if (kind.startsWith("late")) {
            message.setDelayTimeLevel(Integer.parseInt(kind.substring(4)));
        }
        return message;
    }

    private static String kind(long number) {
        switch ((int) (number % KINDS_EACH)) {
            case 8:
                return "again1";
            case 16:
                return "again2";
            case 24:
                return "dead";
            case 32:
                return "late" + (1 + number / KINDS_EACH % 3);
            default:
                return "plain";
        }
    }

    private String line(Message message, SendResult result, long ackedAtNs) {
        String id = result.getOffsetMsgId();
        return "{\"key\":\"" + message.getKeys() + "\",\"set\":\"" + result.getMessageQueue().getBrokerName()
            + "\",\"topic\":\"" + message.getTopic() + "\",\"queueId\":" + result.getMessageQueue().getQueueId()
            + ",\"queueOffset\":" + result.getQueueOffset()
            + ",\"physicalOffset\":" + Long.parseUnsignedLong(id.substring(id.length() - 16), 16)
            + ",\"bodySha256\":\"" + Ledger.sha256(message.getBody()) + "\",\"ackedAtNs\":" + ackedAtNs + "}";
    }

    private void count() throws Exception {
        Path file = directory.resolve("producer.json");
        Path temporary = directory.resolve("producer.json.tmp");
        Files.writeString(temporary,
            "{\"acked\":" + acked + ",\"unsure\":" + unsure + ",\"failed\":" + failed + "}");
        Files.move(temporary, file, StandardCopyOption.ATOMIC_MOVE);
    }
}
