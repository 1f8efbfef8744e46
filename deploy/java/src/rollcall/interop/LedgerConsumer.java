package rollcall.interop;

import java.nio.file.Path;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * RocketMQ's push consumer with its own defaults, from the first offset, which writes down what it was given.
 *
 * <pre>LedgerConsumer NAMESRV TOPIC DIRECTORY SECONDS_MAX</pre>
 *
 * DIRECTORY/consumed.tsv: key, SHA-256 of the body, CLOCK_MONOTONIC in ns; a message that comes twice is there twice.
 */
public final class LedgerConsumer {
    private LedgerConsumer() {
    }

    public static void main(String[] arguments) throws Exception {
        Ledger ledger = new Ledger(Path.of(arguments[2]).resolve("consumed.tsv"));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("rollcall-interop-consumer");
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(arguments[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                ledger.line(message.getKeys() + "\t" + Ledger.sha256(message.getBody()) + "\t" + System.nanoTime());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Thread.sleep(Long.parseLong(arguments[3]) * 1000L);
        consumer.shutdown();
        ledger.close();
        System.exit(0);
    }
}
