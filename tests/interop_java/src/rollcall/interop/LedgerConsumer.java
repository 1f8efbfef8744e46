package rollcall.interop;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * RocketMQ's push consumers with their own defaults, from the first offset, which write down what they were given.
 *
 * <pre>LedgerConsumer NAMESRV TOPIC DIRECTORY SECONDS_MAX [GROUP TOPIC KIND EXPRESSION]...</pre>
 *
 * Without groups one reads all of TOPIC, into DIRECTORY/consumed.tsv; a group writes DIRECTORY/GROUP/consumed.tsv. KIND is
 * tag, sql or ordered. A message that comes twice is there twice; what a line says is told at {@code Ledger.consumed}.
 * SIGTERM ends it as an application would end: each consumer is shut down.
 */
public final class LedgerConsumer {
    private static final int START_TRIES_MAX = 10;
    private static final int RECONSUME_TIMES_MAX = 2;
    private static final int SECOND_DELAY_LEVEL = 2;

    private LedgerConsumer() {
    }

    public static void main(String[] arguments) throws Exception {
        Path directory = Path.of(arguments[2]);
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> consumers.forEach(DefaultMQPushConsumer::shutdown)));
        if (arguments.length == 4) {
            Ledger ledger = new Ledger(directory.resolve("consumed.tsv"));
            consumers.add(started(arguments[0], "rollcall-interop-consumer", arguments[1], "tag", "*", ledger));
        }
        for (int at = 4; at < arguments.length; at += 4) {
            Path own = Files.createDirectories(directory.resolve(arguments[at]));
            Ledger ledger = new Ledger(own.resolve("consumed.tsv"));
            consumers.add(
                started(arguments[0], arguments[at], arguments[at + 1], arguments[at + 2], arguments[at + 3], ledger));
        }
        Thread.sleep(Long.parseLong(arguments[3]) * 1000L);
        System.exit(0);
    }

    /**
     * The client allows its first question 3 s, its own warming up included, then closes the link that its other thread
     * asks on too, which makes start end with either exception on a busy machine. An application would start again.
     */
    private static DefaultMQPushConsumer started(
            String names, String group, String topic, String kind, String expression, Ledger ledger) throws Exception {
        for (int tries = 1;; tries++) {
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, Ledger.signer());
            consumer.setNamesrvAddr(names);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            if (kind.equals("sql")) {
                consumer.subscribe(topic, MessageSelector.bySql(expression));
            } else {
                consumer.subscribe(topic, expression);
            }
            if (kind.equals("ordered")) {
                consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                    messages.forEach(message -> ledger.consumed(message, context.getMessageQueue(), true));
                    return ConsumeOrderlyStatus.SUCCESS;
                });
            } else {
                consumer.setMaxReconsumeTimes(RECONSUME_TIMES_MAX);
                consumer.registerMessageListener(
                    (MessageListenerConcurrently) (messages, context) -> consume(messages, context, ledger));
            }
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

    /** By its defaults a consumer gets messages one by one. */
    private static ConsumeConcurrentlyStatus consume(
            List<MessageExt> messages, ConsumeConcurrentlyContext context, Ledger ledger) {
        boolean refused = false;
        for (MessageExt message : messages) {
            int times = message.getReconsumeTimes();
            boolean own = Ledger.isRefused(message.getKeys(), times);
            ledger.consumed(message, context.getMessageQueue(), !own);
            if (own && times > 0) {
                context.setDelayLevelWhenNextConsume(SECOND_DELAY_LEVEL);
            }
            refused = refused || own;
        }
        return refused ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    }
}
