package compat;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.AmqpTransportType;
import com.azure.core.util.BinaryData;
import com.azure.core.util.IterableStream;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.QueueProperties;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import com.azure.messaging.servicebus.models.SubQueue;
import java.net.URL;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;

/** Runs the cases named on the command line and prints one line of JSON for each. */
public final class Main {
    private static final String CONNECTION = System.getenv("COMPAT_TLS");
    private static final Duration WAIT = Duration.ofSeconds(10);
    private static final Duration SHORT = Duration.ofSeconds(2);

    private interface Case {
        void run() throws Exception;
    }

    public static void main(String[] names) {
        int failed = 0;
        for (String name : names) {
            try {
                find(name).run();
                System.out.println("{\"case\": \"" + name + "\", \"ok\": true}");
            } catch (Throwable error) {
                failed++;
                String text = String.valueOf(error).replaceAll("[^ -~]", " ").replace("\\", "/").replace("\"", "'");
                System.out.println("{\"case\": \"" + name + "\", \"ok\": false, \"detail\": \"" + text + "\"}");
            }
        }
        System.exit(failed == 0 ? 0 : 1);
    }

    private static Case find(String name) {
        switch (name) {
            case "send": return Main::send;
            case "batch": return Main::batch;
            case "settle": return Main::settle;
            case "receive-and-delete": return Main::receiveAndDelete;
            case "peek": return Main::peek;
            case "renew": return Main::renew;
            case "sessions": return Main::sessions;
            case "schedule": return Main::schedule;
            case "topics": return Main::topics;
            case "transactions": return Main::transactions;
            case "administration": return Main::administration;
            case "websocket": return Main::webSocket;
            case "large": return Main::large;
            case "wrong-key": return Main::wrongKey;
            case "missing-entity": return Main::missingEntity;
            case "kill": return Main::kill;
            default: throw new IllegalArgumentException("no case " + name);
        }
    }

    // --- cases ---

    private static void send() {
        ServiceBusMessage message = new ServiceBusMessage("hello").setMessageId("m1").setSubject("s")
            .setTimeToLive(Duration.ofDays(1));
        message.getApplicationProperties().put("n", 5);
        sender("send").sendMessage(message);
        try (ServiceBusReceiverClient receiver = receiver("send")) {
            ServiceBusReceivedMessage got = one(receiver);
            same("hello", got.getBody().toString());
            same("m1", got.getMessageId());
            same(5, got.getApplicationProperties().get("n"));
            same(Duration.ofDays(1), got.getTimeToLive());
            receiver.complete(got);
        }
    }

    private static void batch() {
        ServiceBusSenderClient sender = sender("batch");
        ServiceBusMessageBatch batch = sender.createMessageBatch();
        for (int number = 0; number < 100; number++) {
            batch.tryAddMessage(new ServiceBusMessage("b" + number));
        }
        sender.sendMessages(batch);
        Set<String> found = new HashSet<>();
        try (ServiceBusReceiverClient receiver = receiver("batch")) {
            while (found.size() < 100) {
                for (ServiceBusReceivedMessage message : some(receiver, 100 - found.size())) {
                    found.add(message.getBody().toString());
                    receiver.complete(message);
                }
            }
        }
    }

    private static void settle() {
        ServiceBusSenderClient sender = sender("settle");
        try (ServiceBusReceiverClient receiver = receiver("settle")) {
            sender.sendMessage(new ServiceBusMessage("abandoned"));
            receiver.abandon(one(receiver));
            ServiceBusReceivedMessage again = one(receiver);
            same(1L, again.getDeliveryCount());
            receiver.complete(again);

            sender.sendMessage(new ServiceBusMessage("deferred"));
            ServiceBusReceivedMessage aside = one(receiver);
            receiver.defer(aside);
            ServiceBusReceivedMessage deferred = receiver.receiveDeferredMessage(aside.getSequenceNumber());
            same("deferred", deferred.getBody().toString());
            receiver.complete(deferred);

            sender.sendMessage(new ServiceBusMessage("dead"));
            receiver.deadLetter(one(receiver), new DeadLetterOptions().setDeadLetterReason("why"));
        }
        try (ServiceBusReceiverClient dead = builder().receiver().queueName("settle")
                .subQueue(SubQueue.DEAD_LETTER_QUEUE).disableAutoComplete().buildClient()) {
            ServiceBusReceivedMessage letter = one(dead);
            same("why", letter.getDeadLetterReason());
            dead.complete(letter);
        }
    }

    private static void receiveAndDelete() {
        sender("delete").sendMessage(new ServiceBusMessage("gone"));
        try (ServiceBusReceiverClient receiver = builder().receiver().queueName("delete")
                .receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient()) {
            same("gone", one(receiver).getBody().toString());
        }
        try (ServiceBusReceiverClient receiver = receiver("delete")) {
            same(null, receiver.peekMessage());
        }
    }

    private static void peek() {
        ServiceBusSenderClient sender = sender("peek");
        sender.sendMessages(List.of(new ServiceBusMessage("a"), new ServiceBusMessage("b")));
        try (ServiceBusReceiverClient receiver = receiver("peek")) {
            List<String> bodies = new ArrayList<>();
            receiver.peekMessages(10).forEach(message -> bodies.add(message.getBody().toString()));
            same(List.of("a", "b"), bodies);
        }
    }

    private static void renew() throws InterruptedException {
        sender("renew").sendMessage(new ServiceBusMessage("kept"));
        try (ServiceBusReceiverClient receiver = builder().receiver().queueName("renew").disableAutoComplete()
                .maxAutoLockRenewDuration(Duration.ZERO).buildClient()) {
            ServiceBusReceivedMessage message = one(receiver);
            Thread.sleep(3000);
            receiver.renewMessageLock(message);
            Thread.sleep(3000);
            receiver.complete(message);
        }
    }

    private static void sessions() {
        ServiceBusSenderClient sender = sender("sessions");
        for (String body : List.of("one", "two")) {
            sender.sendMessage(new ServiceBusMessage(body).setSessionId("s1"));
        }
        try (ServiceBusSessionReceiverClient sessions = builder().sessionReceiver().queueName("sessions")
                .disableAutoComplete().buildClient();
             ServiceBusReceiverClient receiver = sessions.acceptNextSession()) {
            same("s1", receiver.getSessionId());
            for (String body : List.of("one", "two")) {
                ServiceBusReceivedMessage message = one(receiver);
                same(body, message.getBody().toString());
                receiver.complete(message);
            }
            receiver.setSessionState("state".getBytes());
            same("state", new String(receiver.getSessionState()));
            receiver.renewSessionLock();
        }
        try (ServiceBusSessionReceiverClient sessions = builder().sessionReceiver().queueName("sessions").buildClient();
             ServiceBusReceiverClient receiver = sessions.acceptSession("s1")) {
            same("state", new String(receiver.getSessionState()));
        }
    }

    private static void schedule() {
        ServiceBusSenderClient sender = sender("schedule");
        sender.scheduleMessage(new ServiceBusMessage("soon"), OffsetDateTime.now().plusSeconds(2));
        long never = sender.scheduleMessage(new ServiceBusMessage("never"), OffsetDateTime.now().plusHours(1));
        sender.cancelScheduledMessage(never);
        try (ServiceBusReceiverClient receiver = receiver("schedule")) {
            ServiceBusReceivedMessage message = one(receiver);
            same("soon", message.getBody().toString());
            receiver.complete(message);
            same(null, receiver.peekMessage(0));
        }
    }

    private static void topics() {
        ServiceBusAdministrationClient admin = administrator();
        admin.createTopic("java-topic");
        admin.createSubscription("java-topic", "red");
        admin.deleteRule("java-topic", "red", "$Default");
        admin.createRule("java-topic", "rule", "red", new CreateRuleOptions()
            .setFilter(new SqlRuleFilter("color = 'red'")).setAction(new SqlRuleAction("SET shade = 'dark'")));
        ServiceBusSenderClient sender = builder().sender().topicName("java-topic").buildClient();
        for (String color : List.of("blue", "red")) {
            ServiceBusMessage message = new ServiceBusMessage(color);
            message.getApplicationProperties().put("color", color);
            sender.sendMessage(message);
        }
        try (ServiceBusReceiverClient receiver = builder().receiver().topicName("java-topic").subscriptionName("red")
                .disableAutoComplete().buildClient()) {
            ServiceBusReceivedMessage message = one(receiver);
            same("red", message.getBody().toString());
            same("dark", message.getApplicationProperties().get("shade"));
            receiver.complete(message);
        }
    }

    private static void transactions() {
        ServiceBusSenderClient sender = sender("transactions");
        ServiceBusTransactionContext committed = sender.createTransaction();
        sender.sendMessage(new ServiceBusMessage("kept"), committed);
        sender.scheduleMessage(new ServiceBusMessage("later"), OffsetDateTime.now().plusHours(1), committed);
        sender.commitTransaction(committed);
        ServiceBusTransactionContext rolledBack = sender.createTransaction();
        sender.sendMessage(new ServiceBusMessage("lost"), rolledBack);
        sender.rollbackTransaction(rolledBack);
        try (ServiceBusReceiverClient receiver = receiver("transactions")) {
            ServiceBusTransactionContext inside = receiver.createTransaction();
            ServiceBusReceivedMessage message = one(receiver);
            same("kept", message.getBody().toString());
            receiver.complete(message, new com.azure.messaging.servicebus.models.CompleteOptions()
                .setTransactionContext(inside));
            receiver.commitTransaction(inside);
            List<String> left = new ArrayList<>();
            receiver.peekMessages(10, 0).forEach(each -> left.add(each.getBody().toString()));
            same(List.of("later"), left);
        }
    }

    private static void administration() {
        ServiceBusAdministrationClient admin = administrator();
        QueueProperties made = admin.createQueue("java-made",
            new CreateQueueOptions().setLockDuration(Duration.ofSeconds(30)).setMaxDeliveryCount(3));
        same(3, made.getMaxDeliveryCount());
        made.setMaxDeliveryCount(4);
        same(4, admin.updateQueue(made).getMaxDeliveryCount());
        same(0, admin.getQueueRuntimeProperties("java-made").getActiveMessageCount());
        same(true, admin.listQueues().stream().anyMatch(queue -> queue.getName().equals("java-made")));
        admin.deleteQueue("java-made");
        same(false, admin.getQueueExists("java-made"));
    }

    private static void webSocket() {
        ServiceBusClientBuilder overWebSocket = builder().transportType(AmqpTransportType.AMQP_WEB_SOCKETS);
        overWebSocket.sender().queueName("websocket").buildClient().sendMessage(new ServiceBusMessage("through"));
        try (ServiceBusReceiverClient receiver = overWebSocket.receiver().queueName("websocket").disableAutoComplete()
                .buildClient()) {
            ServiceBusReceivedMessage message = one(receiver);
            same("through", message.getBody().toString());
            receiver.complete(message);
        }
    }

    private static void large() {
        byte[] body = new byte[5 * 1024 * 1024];
        body[body.length - 1] = 7;
        sender("large").sendMessage(new ServiceBusMessage(BinaryData.fromBytes(body)));
        try (ServiceBusReceiverClient receiver = receiver("large")) {
            ServiceBusReceivedMessage message = one(receiver);
            byte[] got = message.getBody().toBytes();
            same(body.length, got.length);
            same((byte) 7, got[got.length - 1]);
            receiver.complete(message);
        }
    }

    private static void wrongKey() {
        String wrong = CONNECTION.replaceAll("SharedAccessKey=[^;]+", "SharedAccessKey=wrong");
        refused(() -> builder(wrong).sender().queueName("send").buildClient().sendMessage(new ServiceBusMessage("x")),
            "UNAUTHORIZED");
    }

    private static void missingEntity() {
        refused(() -> sender("none").sendMessage(new ServiceBusMessage("x")), "MESSAGING_ENTITY_NOT_FOUND");
    }

    /** Sends and receives while somebody kills the broker; ends when every message has come. */
    private static void kill() {
        int count = Integer.parseInt(System.getenv("COMPAT_COUNT"));
        Thread sending = new Thread(() -> {
            ServiceBusSenderClient sender = sender("kill");
            for (int number = 0; number < count; number++) {
                while (true) {
                    try {
                        sender.sendMessage(new ServiceBusMessage("k" + number));
                        break;
                    } catch (RuntimeException error) {
                        pause();
                    }
                }
            }
        });
        sending.start();
        Set<String> found = new HashSet<>();
        ServiceBusReceiverClient receiver = receiver("kill");
        while (found.size() < count) {
            try {
                for (ServiceBusReceivedMessage message : receiver.receiveMessages(20, SHORT)) {
                    // Noted first: the broker may die between the completion and its answer.
                    found.add(message.getBody().toString());
                    System.out.println("{\"received\": " + found.size() + "}");
                    receiver.complete(message);
                }
            } catch (RuntimeException error) {
                pause();
            }
        }
    }

    // --- clients ---

    private static ServiceBusClientBuilder builder() {
        return builder(CONNECTION);
    }

    private static ServiceBusClientBuilder builder(String connection) {
        AmqpRetryOptions retries = new AmqpRetryOptions().setMaxRetries(2).setDelay(Duration.ofMillis(500))
            .setTryTimeout(WAIT);
        return new ServiceBusClientBuilder().connectionString(connection).retryOptions(retries);
    }

    private static ServiceBusSenderClient sender(String queue) {
        return builder().sender().queueName(queue).buildClient();
    }

    private static ServiceBusReceiverClient receiver(String queue) {
        return builder().receiver().queueName(queue).disableAutoComplete().buildClient();
    }

    /** The client administers by port 443 whatever the string says: a policy leads it to the namespace's own. */
    private static ServiceBusAdministrationClient administrator() {
        int port = Integer.parseInt(System.getenv("COMPAT_PORT"));
        return new ServiceBusAdministrationClientBuilder().connectionString(CONNECTION)
            .addPolicy((context, next) -> {
                URL url = context.getHttpRequest().getUrl();
                try {
                    context.getHttpRequest().setUrl(new URL(url.getProtocol(), url.getHost(), port, url.getFile()));
                } catch (java.net.MalformedURLException error) {
                    throw new IllegalStateException(error);
                }
                return next.process();
            }).buildClient();
    }

    // --- checks ---

    private static ServiceBusReceivedMessage one(ServiceBusReceiverClient receiver) {
        for (ServiceBusReceivedMessage message : receiver.receiveMessages(1, WAIT)) {
            return message;
        }
        throw new IllegalStateException("no message came");
    }

    private static IterableStream<ServiceBusReceivedMessage> some(ServiceBusReceiverClient receiver, int count) {
        return receiver.receiveMessages(count, WAIT);
    }

    private static void same(Object wanted, Object found) {
        if (!Objects.equals(wanted, found)) {
            throw new IllegalStateException("wanted " + wanted + ", found " + found);
        }
    }

    private static void refused(Runnable action, String reason) {
        try {
            action.run();
        } catch (ServiceBusException error) {
            same(reason, error.getReason().toString());
            return;
        }
        throw new IllegalStateException("not refused");
    }

    private static void pause() {
        try {
            Thread.sleep(200);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
