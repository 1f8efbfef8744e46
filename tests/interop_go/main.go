// RocketMQ's client for Go with its own defaults, which writes down what was acknowledged and what it was given.
//
//	interop produce NAMESRV TOPIC ORDERED_TOPIC DIRECTORY THREADS BODY_BYTES PAUSE_MS
//	interop consume NAMESRV TOPIC ORDERED_TOPIC DIRECTORY GROUP EXPRESSION ORDERED_GROUP
//
// NAMESRV is host:port;host:port. A producer writes DIRECTORY/ledger.jsonl, a group DIRECTORY/GROUP/consumed.tsv, with the
// lines of the Java programs of tests/interop_java. SIGTERM ends either after what is under way.
package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const (
	kindsEach          = 40
	shards             = 8
	reconsumeTimesMax  = 2
	secondDelayLevel   = 2
	refusedPause       = 50 * time.Millisecond
	startTriesMax      = 10
	startPause         = time.Second
	physicalOffsetSize = 16
)

type acknowledged struct {
	Key            string `json:"key"`
	Set            string `json:"set"`
	Topic          string `json:"topic"`
	QueueID        int    `json:"queueId"`
	QueueOffset    int64  `json:"queueOffset"`
	PhysicalOffset int64  `json:"physicalOffset"`
	BodySha256     string `json:"bodySha256"`
	AckedAtNs      int64  `json:"ackedAtNs"`
}

func main() {
	rlog.SetLogLevel("error")
	ended, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	run := map[string]func(context.Context, []string) error{"produce": produce, "consume": consume}[os.Args[1]]
	if err := run(ended, os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// load is one process that sends.
type load struct {
	books     *ledger
	run       string
	bodyBytes int
	pause     time.Duration
	numbers   atomic.Int64
}

func produce(ended context.Context, arguments []string) error {
	numbers := make([]int, 3)
	for at, text := range arguments[4:7] {
		number, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		numbers[at] = number
	}
	books, err := openLedger(arguments[3], "ledger.jsonl")
	if err != nil {
		return err
	}
	random := make([]byte, 6)
	if _, err := rand.Read(random); err != nil {
		return err
	}
	sending := &load{
		books: books, run: hex.EncodeToString(random), bodyBytes: numbers[1],
		pause: time.Duration(numbers[2]) * time.Millisecond,
	}
	plain, err := startedProducer(arguments[0], "go-producer")
	if err != nil {
		return err
	}
	ordered, err := startedProducer(arguments[0], "go-producer-in-order", producer.WithQueueSelector(producer.NewHashQueueSelector()))
	if err != nil {
		return err
	}
	var workers sync.WaitGroup
	for range make([]struct{}, numbers[0]) {
		workers.Add(1)
		go func() { defer workers.Done(); sending.work(ended, plain, arguments[1], kindAt) }()
	}
	workers.Add(1)
	go func() {
		defer workers.Done()
		sending.work(ended, ordered, arguments[2], func(number int64) string { return fmt.Sprintf("shard%d", number%shards) })
	}()
	workers.Wait()
	_ = plain.Shutdown()
	return ordered.Shutdown()
}

func startedProducer(names, group string, options ...producer.Option) (rocketmq.Producer, error) {
	options = append(options, producer.WithNameServer(strings.Split(names, ";")), producer.WithGroupName(group), producer.WithInstanceName(group))
	made, err := rocketmq.NewProducer(options...)
	if err != nil {
		return nil, err
	}
	return made, made.Start()
}

func (l *load) work(ended context.Context, sender rocketmq.Producer, topic string, kind func(int64) string) {
	for ended.Err() == nil {
		pause := l.pause
		if !l.send(sender, topic, kind) {
			pause = refusedPause
		}
		time.Sleep(pause)
	}
}

// send tells whether it was acknowledged; another outcome is never sent again under its key by us.
func (l *load) send(sender rocketmq.Producer, topic string, kind func(int64) string) bool {
	number := l.numbers.Add(1)
	wanted := kind(number)
	key := fmt.Sprintf("go-%s-%s-%012x", wanted, l.run, number)
	message := primitive.NewMessage(topic, bodyOf(key, l.bodyBytes)).WithKeys([]string{key}).WithTag([]string{"even", "odd"}[number%2])
	if strings.HasPrefix(wanted, "shard") {
		message.WithShardingKey(wanted)
	}
	if level, found := strings.CutPrefix(wanted, "late"); found {
		wait, _ := strconv.Atoi(level)
		message.WithDelayTimeLevel(wait)
	}
	// Not the context that SIGTERM ends: a send that is under way is waited for.
	result, err := sender.SendSync(context.Background(), message)
	if err != nil || result.Status != primitive.SendOK {
		return false
	}
	ackedAtNs := nowNs()
	offset, err := strconv.ParseInt(result.OffsetMsgID[max(0, len(result.OffsetMsgID)-physicalOffsetSize):], 16, 64)
	if err != nil {
		panic(err)
	}
	line, err := json.Marshal(acknowledged{
		Key: key, Set: result.MessageQueue.BrokerName, Topic: topic, QueueID: result.MessageQueue.QueueId,
		QueueOffset: result.QueueOffset, PhysicalOffset: offset, BodySha256: digestOf(message.Body), AckedAtNs: ackedAtNs,
	})
	if err != nil {
		panic(err)
	}
	l.books.write(string(line))
	return true
}

func consume(ended context.Context, arguments []string) error {
	byTag := consumer.MessageSelector{Type: consumer.TAG, Expression: arguments[5]}
	plain, err := startedConsumer(arguments[0], arguments[3], arguments[4], arguments[1], byTag)
	if err != nil {
		return err
	}
	ordered, err := startedConsumer(
		arguments[0], arguments[3], arguments[6], arguments[2], consumer.MessageSelector{}, consumer.WithConsumerOrder(true))
	if err != nil {
		return err
	}
	<-ended.Done()
	_ = plain.Shutdown()
	return ordered.Shutdown()
}

func startedConsumer(
	names, directory, group, topic string, selector consumer.MessageSelector, options ...consumer.Option,
) (rocketmq.PushConsumer, error) {
	books, err := openLedger(filepath.Join(directory, group), "consumed.tsv")
	if err != nil {
		return nil, err
	}
	options = append(options,
		consumer.WithNameServer(strings.Split(names, ";")), consumer.WithGroupName(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithMaxReconsumeTimes(reconsumeTimesMax))
	for tries := 1; ; tries++ {
		made, err := rocketmq.NewPushConsumer(options...)
		if err != nil {
			return nil, err
		}
		if err = made.Subscribe(topic, selector, books.take); err != nil {
			return nil, err
		}
		if err = made.Start(); err == nil || tries == startTriesMax {
			return made, err
		}
		_ = made.Shutdown()
		time.Sleep(startPause)
	}
}

// take writes down what came; by its defaults a consumer gets messages one by one.
func (l *ledger) take(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	var queue primitive.MessageQueue
	concurrent, isConcurrent := primitive.GetConcurrentlyCtx(ctx)
	if isConcurrent {
		queue = concurrent.MQ
	} else if inOrder, found := primitive.GetOrderlyCtx(ctx); found {
		queue = inOrder.MQ
	}
	result := consumer.ConsumeSuccess
	for _, message := range messages {
		key, taken := message.GetKeys(), 1
		if isConcurrent && isRefused(key, message.ReconsumeTimes) {
			taken, result = 0, consumer.ConsumeRetryLater
			if message.ReconsumeTimes > 0 {
				concurrent.DelayLevelWhenNextConsume = secondDelayLevel
			}
		}
		l.write(fmt.Sprintf("%s\t%s\t%d\t%s\t%d\t%d\t%d\t%d", key, digestOf(message.Body), nowNs(), queue.Topic, queue.QueueId,
			message.QueueOffset, message.ReconsumeTimes, taken))
	}
	return result, nil
}
