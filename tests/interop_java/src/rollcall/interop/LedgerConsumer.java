package rollcall.interop;

import java.nio.file.Path;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * RocketMQ's push consumer with its own defaults, from the first offset, which writes down what it was given.
 *
 * <pre>LedgerConsumer NAMESRV TOPIC DIRECTORY SECONDS_MAX [GROUP SQL]</pre>
 *
 * DIRECTORY/consumed.tsv: key, SHA-256 of the body, CLOCK_MONOTONIC in ns; a message that comes twice is there twice.
 */
public final class LedgerConsumer {
    private static final int START_TRIES_MAX = 10;

    private LedgerConsumer() {
    }

    public static void main(String[] arguments) throws Exception {
        Ledger ledger = new Ledger(Path.of(arguments[2]).resolve("consumed.tsv"));
        DefaultMQPushConsumer consumer = started(arguments, ledger);
        Thread.sleep(Long.parseLong(arguments[3]) * 1000L);
        consumer.shutdown();
        ledger.close();
        System.exit(0);
    }

    /**
     * The client allows its first question 3 s, its own warming up included, then closes the link that its other thread
     * asks on too, which makes start end with either exception on a busy machine. An application would start again.
     */
    private static DefaultMQPushConsumer started(String[] arguments, Ledger ledger) throws Exception {
        boolean bySql = arguments.length > 5;
        String group = bySql ? arguments[4] : "rollcall-interop-consumer";
        for (int tries = 1;; tries++) {
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, Ledger.signer());
            consumer.setNamesrvAddr(arguments[0]);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            if (bySql) {
                consumer.subscribe(arguments[1], MessageSelector.bySql(arguments[5]));
            } else {
                consumer.subscribe(arguments[1], "*");
            }
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                for (MessageExt message : messages) {
                    ledger.line(message.getKeys() + "\t" + Ledger.sha256(message.getBody()) + "\t" + System.nanoTime());
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            try {
                consumer.start();
                return consumer;
            } catch (MQClientException | IllegalStateException refused) {
                consumer.shutdown();
                if (tries == START_TRIES_MAX) {
                    throw refused;
                }
            }
        }
    }
}
