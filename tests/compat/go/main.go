// Runs the cases named on the command line and prints one line of JSON for each.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/coder/websocket"
)

var connection = os.Getenv("COMPAT_TLS")

var cases = map[string]func(ctx context.Context) error{
	"send":               send,
	"batch":              batch,
	"settle":             settle,
	"receive-and-delete": receiveAndDelete,
	"peek":               peek,
	"renew":              renew,
	"sessions":           sessions,
	"schedule":           schedule,
	"topics":             topics,
	"administration":     administration,
	"websocket":          overWebSocket,
	"large":              large,
	"wrong-key":          wrongKey,
	"missing-entity":     missingEntity,
	"kill":               kill,
}

func main() {
	failed := false
	for _, name := range os.Args[1:] {
		line := map[string]any{"case": name, "ok": true}
		patience := 20 * time.Second
		if name == "kill" {
			patience = 10 * time.Minute
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		if err := cases[name](ctx); err != nil {
			line["ok"], line["detail"] = false, err.Error()
			failed = true
		}
		cancel()
		text, _ := json.Marshal(line)
		fmt.Println(string(text))
	}
	if failed {
		os.Exit(1)
	}
}

// --- cases ---

func send(ctx context.Context) error {
	ttl := 60 * 24 * time.Hour
	message := &azservicebus.Message{
		Body: []byte("hello"), MessageID: to.Ptr("m1"), Subject: to.Ptr("s"), TimeToLive: &ttl,
		ApplicationProperties: map[string]any{"n": int64(5)},
	}
	if err := sendTo(ctx, client(), "send", message); err != nil {
		return err
	}
	receiver := receiverOf(client(), "send", nil)
	got, err := one(ctx, receiver)
	if err != nil {
		return err
	}
	if err := same("hello m1 5", fmt.Sprint(string(got.Body), " ", got.MessageID, " ", got.ApplicationProperties["n"])); err != nil {
		return err
	}
	return receiver.CompleteMessage(ctx, got, nil)
}

func batch(ctx context.Context) error {
	sender, err := client().NewSender("batch", nil)
	if err != nil {
		return err
	}
	together, err := sender.NewMessageBatch(ctx, nil)
	if err != nil {
		return err
	}
	for number := range 100 {
		if err := together.AddMessage(&azservicebus.Message{Body: []byte(strconv.Itoa(number))}, nil); err != nil {
			return err
		}
	}
	if err := sender.SendMessageBatch(ctx, together, nil); err != nil {
		return err
	}
	receiver := receiverOf(client(), "batch", nil)
	found := map[string]bool{}
	for len(found) < 100 {
		messages, err := receiver.ReceiveMessages(ctx, 100-len(found), nil)
		if err != nil {
			return err
		}
		for _, message := range messages {
			found[string(message.Body)] = true
			if err := receiver.CompleteMessage(ctx, message, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

func settle(ctx context.Context) error {
	bus := client()
	receiver := receiverOf(bus, "settle", nil)
	take := func(body string) (*azservicebus.ReceivedMessage, error) {
		if err := sendTo(ctx, bus, "settle", &azservicebus.Message{Body: []byte(body)}); err != nil {
			return nil, err
		}
		return one(ctx, receiver)
	}
	message, err := take("abandoned")
	if err != nil {
		return err
	}
	if err := receiver.AbandonMessage(ctx, message, nil); err != nil {
		return err
	}
	if message, err = one(ctx, receiver); err != nil {
		return err
	}
	// Go counts this delivery too.
	if err := same("2", fmt.Sprint(message.DeliveryCount)); err != nil {
		return err
	}
	if err := receiver.CompleteMessage(ctx, message, nil); err != nil {
		return err
	}
	if message, err = take("deferred"); err != nil {
		return err
	}
	if err := receiver.DeferMessage(ctx, message, nil); err != nil {
		return err
	}
	deferred, err := receiver.ReceiveDeferredMessages(ctx, []int64{*message.SequenceNumber}, nil)
	if err != nil {
		return err
	}
	if err := receiver.CompleteMessage(ctx, deferred[0], nil); err != nil {
		return err
	}
	if message, err = take("dead"); err != nil {
		return err
	}
	options := &azservicebus.DeadLetterOptions{Reason: to.Ptr("why")}
	if err := receiver.DeadLetterMessage(ctx, message, options); err != nil {
		return err
	}
	dead := receiverOf(bus, "settle", &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
	letter, err := one(ctx, dead)
	if err != nil {
		return err
	}
	if err := same("why", *letter.DeadLetterReason); err != nil {
		return err
	}
	return dead.CompleteMessage(ctx, letter, nil)
}

func receiveAndDelete(ctx context.Context) error {
	bus := client()
	if err := sendTo(ctx, bus, "delete", &azservicebus.Message{Body: []byte("gone")}); err != nil {
		return err
	}
	options := &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete}
	if _, err := one(ctx, receiverOf(bus, "delete", options)); err != nil {
		return err
	}
	left, err := receiverOf(bus, "delete", nil).PeekMessages(ctx, 1, nil)
	if err != nil {
		return err
	}
	return same("0", fmt.Sprint(len(left)))
}

func peek(ctx context.Context) error {
	bus := client()
	for _, body := range []string{"a", "b"} {
		if err := sendTo(ctx, bus, "peek", &azservicebus.Message{Body: []byte(body)}); err != nil {
			return err
		}
	}
	found, err := receiverOf(bus, "peek", nil).PeekMessages(ctx, 10, nil)
	if err != nil {
		return err
	}
	return same("2", fmt.Sprint(len(found)))
}

func renew(ctx context.Context) error {
	bus := client()
	if err := sendTo(ctx, bus, "renew", &azservicebus.Message{Body: []byte("kept")}); err != nil {
		return err
	}
	receiver := receiverOf(bus, "renew", nil)
	message, err := one(ctx, receiver)
	if err != nil {
		return err
	}
	time.Sleep(3 * time.Second)
	if err := receiver.RenewMessageLock(ctx, message, nil); err != nil {
		return err
	}
	time.Sleep(3 * time.Second)
	return receiver.CompleteMessage(ctx, message, nil)
}

func sessions(ctx context.Context) error {
	bus := client()
	for _, body := range []string{"one", "two"} {
		if err := sendTo(ctx, bus, "sessions", &azservicebus.Message{Body: []byte(body), SessionID: to.Ptr("s1")}); err != nil {
			return err
		}
	}
	session, err := bus.AcceptNextSessionForQueue(ctx, "sessions", nil)
	if err != nil {
		return err
	}
	if err := same("s1", session.SessionID()); err != nil {
		return err
	}
	for _, body := range []string{"one", "two"} {
		messages, err := session.ReceiveMessages(ctx, 1, nil)
		if err != nil {
			return err
		}
		if err := same(body, string(messages[0].Body)); err != nil {
			return err
		}
		if err := session.CompleteMessage(ctx, messages[0], nil); err != nil {
			return err
		}
	}
	if err := session.SetSessionState(ctx, []byte("state"), nil); err != nil {
		return err
	}
	if err := session.RenewSessionLock(ctx, nil); err != nil {
		return err
	}
	if err := session.Close(ctx); err != nil {
		return err
	}
	again, err := bus.AcceptSessionForQueue(ctx, "sessions", "s1", nil)
	if err != nil {
		return err
	}
	state, err := again.GetSessionState(ctx, nil)
	if err != nil {
		return err
	}
	return same("state", string(state))
}

func schedule(ctx context.Context) error {
	bus := client()
	sender, err := bus.NewSender("schedule", nil)
	if err != nil {
		return err
	}
	at := func(body string, when time.Duration) ([]int64, error) {
		messages := []*azservicebus.Message{{Body: []byte(body)}}
		return sender.ScheduleMessages(ctx, messages, time.Now().Add(when), nil)
	}
	if _, err := at("soon", 2*time.Second); err != nil {
		return err
	}
	never, err := at("never", time.Hour)
	if err != nil {
		return err
	}
	if err := sender.CancelScheduledMessages(ctx, never, nil); err != nil {
		return err
	}
	receiver := receiverOf(bus, "schedule", nil)
	message, err := one(ctx, receiver)
	if err != nil {
		return err
	}
	if err := same("soon", string(message.Body)); err != nil {
		return err
	}
	return receiver.CompleteMessage(ctx, message, nil)
}

func topics(ctx context.Context) error {
	manager, err := admin.NewClientFromConnectionString(connection, nil)
	if err != nil {
		return err
	}
	if _, err := manager.CreateTopic(ctx, "go-topic", nil); err != nil {
		return err
	}
	rule := &admin.RuleProperties{
		Name: "rule", Filter: &admin.SQLFilter{Expression: "color = 'red'"},
		Action: &admin.SQLAction{Expression: "SET shade = 'dark'"},
	}
	options := &admin.CreateSubscriptionOptions{Properties: &admin.SubscriptionProperties{DefaultRule: rule}}
	if _, err := manager.CreateSubscription(ctx, "go-topic", "red", options); err != nil {
		return err
	}
	bus := client()
	for _, color := range []string{"blue", "red"} {
		message := &azservicebus.Message{Body: []byte(color), ApplicationProperties: map[string]any{"color": color}}
		if err := sendTo(ctx, bus, "go-topic", message); err != nil {
			return err
		}
	}
	receiver, err := bus.NewReceiverForSubscription("go-topic", "red", nil)
	if err != nil {
		return err
	}
	message, err := one(ctx, receiver)
	if err != nil {
		return err
	}
	if err := same("red dark", fmt.Sprint(string(message.Body), " ", message.ApplicationProperties["shade"])); err != nil {
		return err
	}
	return receiver.CompleteMessage(ctx, message, nil)
}

func administration(ctx context.Context) error {
	manager, err := admin.NewClientFromConnectionString(connection, nil)
	if err != nil {
		return err
	}
	properties := &admin.QueueProperties{LockDuration: to.Ptr("PT30S"), MaxDeliveryCount: to.Ptr(int32(3))}
	made, err := manager.CreateQueue(ctx, "go-made", &admin.CreateQueueOptions{Properties: properties})
	if err != nil {
		return err
	}
	made.QueueProperties.MaxDeliveryCount = to.Ptr(int32(4))
	updated, err := manager.UpdateQueue(ctx, "go-made", made.QueueProperties, nil)
	if err != nil {
		return err
	}
	if err := same("4", fmt.Sprint(*updated.MaxDeliveryCount)); err != nil {
		return err
	}
	counts, err := manager.GetQueueRuntimeProperties(ctx, "go-made", nil)
	if err != nil {
		return err
	}
	if err := same("0 true", fmt.Sprint(counts.TotalMessageCount, " ", counts.AccessedAt.IsZero())); err != nil {
		return err
	}
	if _, err := manager.DeleteQueue(ctx, "go-made", nil); err != nil {
		return err
	}
	gone, err := manager.GetQueue(ctx, "go-made", nil)
	if err != nil {
		return err
	}
	return same("true", fmt.Sprint(gone == nil))
}

func overWebSocket(ctx context.Context) error {
	options := &azservicebus.ClientOptions{
		NewWebSocketConn: func(ctx context.Context, args azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			dialed := &websocket.DialOptions{Subprotocols: []string{"amqp"}}
			socket, _, err := websocket.Dial(ctx, args.Host, dialed)
			if err != nil {
				return nil, err
			}
			return websocket.NetConn(context.Background(), socket, websocket.MessageBinary), nil
		},
	}
	bus, err := azservicebus.NewClientFromConnectionString(connection, options)
	if err != nil {
		return err
	}
	if err := sendTo(ctx, bus, "websocket", &azservicebus.Message{Body: []byte("through")}); err != nil {
		return err
	}
	receiver := receiverOf(bus, "websocket", nil)
	message, err := one(ctx, receiver)
	if err != nil {
		return err
	}
	return receiver.CompleteMessage(ctx, message, nil)
}

func large(ctx context.Context) error {
	bus := client()
	body := make([]byte, 5*1024*1024)
	body[len(body)-1] = 7
	if err := sendTo(ctx, bus, "large", &azservicebus.Message{Body: body}); err != nil {
		return err
	}
	receiver := receiverOf(bus, "large", nil)
	message, err := one(ctx, receiver)
	if err != nil {
		return err
	}
	if err := same(fmt.Sprint(len(body), " 7"), fmt.Sprint(len(message.Body), " ", message.Body[len(body)-1])); err != nil {
		return err
	}
	return receiver.CompleteMessage(ctx, message, nil)
}

func wrongKey(ctx context.Context) error {
	wrong := regexp.MustCompile("SharedAccessKey=[^;]+").ReplaceAllString(connection, "SharedAccessKey=wrong")
	bus, err := azservicebus.NewClientFromConnectionString(wrong, &azservicebus.ClientOptions{TLSConfig: trusting()})
	if err != nil {
		return err
	}
	return refused(sendTo(ctx, bus, "send", &azservicebus.Message{}), azservicebus.CodeUnauthorizedAccess)
}

func missingEntity(ctx context.Context) error {
	return refused(sendTo(ctx, client(), "none", &azservicebus.Message{}), azservicebus.CodeNotFound)
}

// Sends and receives while somebody kills the broker; ends when every message has come.
func kill(ctx context.Context) error {
	count, _ := strconv.Atoi(os.Getenv("COMPAT_COUNT"))
	go func() {
		sender, _ := client().NewSender("kill", nil)
		for number := range count {
			for {
				trying, cancel := context.WithTimeout(ctx, 10*time.Second)
				err := sender.SendMessage(trying, &azservicebus.Message{Body: []byte(strconv.Itoa(number))}, nil)
				cancel()
				if err == nil {
					break
				}
				time.Sleep(200 * time.Millisecond)
			}
		}
	}()
	found := map[string]bool{}
	receiver := receiverOf(client(), "kill", nil)
	for len(found) < count {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		trying, cancel := context.WithTimeout(ctx, 10*time.Second)
		messages, err := receiver.ReceiveMessages(trying, 20, nil)
		for _, message := range messages {
			// Noted first: the broker may die between the completion and its answer.
			found[string(message.Body)] = true
			fmt.Printf("{\"received\": %d}\n", len(found))
			_ = receiver.CompleteMessage(trying, message, nil)
		}
		cancel()
		if err != nil {
			time.Sleep(200 * time.Millisecond)
		}
	}
	return nil
}

// --- clients ---

// The client takes host:port for the name in the certificate, so the name is given.
func trusting() *tls.Config {
	return &tls.Config{ServerName: "localhost", MinVersion: tls.VersionTLS12}
}

func client() *azservicebus.Client {
	bus, err := azservicebus.NewClientFromConnectionString(connection, &azservicebus.ClientOptions{TLSConfig: trusting()})
	if err != nil {
		panic(err)
	}
	return bus
}

func sendTo(ctx context.Context, bus *azservicebus.Client, path string, message *azservicebus.Message) error {
	sender, err := bus.NewSender(path, nil)
	if err != nil {
		return err
	}
	defer sender.Close(ctx)
	return sender.SendMessage(ctx, message, nil)
}

func receiverOf(bus *azservicebus.Client, queue string, options *azservicebus.ReceiverOptions) *azservicebus.Receiver {
	receiver, err := bus.NewReceiverForQueue(queue, options)
	if err != nil {
		panic(err)
	}
	return receiver
}

// --- checks ---

func one(ctx context.Context, receiver *azservicebus.Receiver) (*azservicebus.ReceivedMessage, error) {
	messages, err := receiver.ReceiveMessages(ctx, 1, nil)
	if err != nil {
		return nil, err
	}
	return messages[0], nil
}

func same(wanted string, found string) error {
	if wanted != found {
		return fmt.Errorf("wanted %s, found %s", wanted, found)
	}
	return nil
}

func refused(err error, code azservicebus.Code) error {
	var found *azservicebus.Error
	if !errors.As(err, &found) {
		return fmt.Errorf("not refused as such: %v", err)
	}
	return same(string(code), string(found.Code))
}
