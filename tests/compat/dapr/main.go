// Publishes and subscribes with Dapr's own component for Service Bus queues, as its sidecar does.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/dapr/components-contrib/metadata"
	"github.com/dapr/components-contrib/pubsub"
	"github.com/dapr/components-contrib/pubsub/azure/servicebus/queues"
	"github.com/dapr/kit/logger"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	component := queues.NewAzureServiceBusQueues(logger.NewLogger("dapr"))
	properties := map[string]string{
		"connectionString": os.Getenv("COMPAT_PLAIN"),
		// The component would make its queues by HTTPS.
		"disableEntityManagement": "true",
	}
	if err := component.Init(ctx, pubsub.Metadata{Base: metadata.Base{Properties: properties}}); err != nil {
		return err
	}
	received := make(chan string, 3)
	handler := func(_ context.Context, message *pubsub.NewMessage) error {
		received <- string(message.Data)
		return nil
	}
	if err := component.Subscribe(ctx, pubsub.SubscribeRequest{Topic: "orders"}, handler); err != nil {
		return err
	}
	for number := range 3 {
		request := &pubsub.PublishRequest{Topic: "orders", Data: []byte(fmt.Sprint("order ", number+1))}
		if err := component.Publish(ctx, request); err != nil {
			return err
		}
	}
	for range 3 {
		select {
		case order := <-received:
			fmt.Println("received", order)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return component.Close()
}
