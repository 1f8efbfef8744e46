package rollcall.interop;

import java.nio.file.Path;
import java.util.List;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * RocketMQ's producer sends a few given messages one after the other, and then stays connected until it is ended.
 *
 * <pre>Sender NAMESRV GROUP TOPIC DIRECTORY SECONDS_MAX KEY/TAG/QUEUE/LEVEL...</pre>
 *
 * DIRECTORY/ids.tsv has of each its key, its unique id and its id by place.
 * A message that is not stored ends the program.
 */
public final class Sender {
    private static final int BODY_BYTES = 40;
    private static final int TIMEOUT_MS = 20_000;

    private Sender() {
    }

    public static void main(String[] arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(arguments[1], Ledger.signer());
        producer.setNamesrvAddr(arguments[0]);
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.start();
        try (Ledger ids = new Ledger(Path.of(arguments[3]).resolve("ids.tsv"))) {
            for (String each : List.of(arguments).subList(5, arguments.length)) {
                String[] parts = each.split("/");
                Message message = new Message(arguments[2], parts[1], parts[0], Ledger.body(parts[0], BODY_BYTES));
                message.setDelayTimeLevel(Integer.parseInt(parts[3]));
                SendResult sent = producer.send(message, (queues, one, queue) -> at(queues, queue), parts[2]);
                if (sent.getSendStatus() != SendStatus.SEND_OK) {
                    throw new IllegalStateException(parts[0] + ": " + sent);
                }
                ids.line(parts[0] + "\t" + sent.getMsgId() + "\t" + sent.getOffsetMsgId());
            }
        }
        Thread.sleep(Long.parseLong(arguments[4]) * 1000L);
        System.exit(0);
    }

    private static MessageQueue at(List<MessageQueue> queues, Object queue) {
        int wanted = Integer.parseInt(queue.toString());
        return queues.stream().filter(one -> one.getQueueId() == wanted).findFirst().orElseThrow();
    }
}
