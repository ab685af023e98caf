package compat;

import jakarta.jms.BytesMessage;
import jakarta.jms.CompletionListener;
import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.ArrayList;
import java.util.Enumeration;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.qpid.jms.JmsConnectionFactory;

/** Runs the cases named on the command line and prints one line of JSON for each. */
public final class Main {
    private static final String CONNECTION = System.getenv("COMPAT_TLS");
    private static final int PORT = Integer.parseInt(System.getenv("COMPAT_PORT"));
    private static final int WAIT_MS = 10_000;
    // Values of the client's property JMS_AMQP_ACK_TYPE.
    private static final int REJECTED = 2;
    private static final int MODIFIED_FAILED = 4;

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
            case "peek": return Main::peek;
            case "schedule": return Main::schedule;
            case "topics": return Main::topics;
            case "transactions": return Main::transactions;
            case "websocket": return Main::webSocket;
            case "large": return Main::large;
            case "wrong-key": return Main::wrongKey;
            case "missing-entity": return Main::missingEntity;
            case "kill": return Main::kill;
            default: throw new IllegalArgumentException("no case " + name);
        }
    }

    // --- cases ---

    private static void send() throws Exception {
        try (Connection connection = connect(amqps(""))) {
            Session session = connection.createSession(Session.CLIENT_ACKNOWLEDGE);
            TextMessage message = session.createTextMessage("hello");
            message.setIntProperty("n", 5);
            MessageProducer producer = session.createProducer(session.createQueue("send"));
            producer.setTimeToLive(60_000);
            producer.send(message);
            TextMessage got = (TextMessage) one(session, "send");
            same("hello", got.getText());
            same(5, got.getIntProperty("n"));
            same(60_000L, got.getJMSExpiration() - got.getJMSTimestamp());
            got.acknowledge();
        }
    }

    /** JMS has no batches: many sends in flight at once are what it has. */
    private static void batch() throws Exception {
        try (Connection connection = connect(amqps(""))) {
            Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            MessageProducer producer = session.createProducer(session.createQueue("batch"));
            CountDownLatch sent = new CountDownLatch(100);
            for (int number = 0; number < 100; number++) {
                producer.send(session.createTextMessage("b" + number), new CompletionListener() {
                    public void onCompletion(Message message) {
                        sent.countDown();
                    }

                    public void onException(Message message, Exception error) {
                        // It is not counted, and the case fails.
                    }
                });
            }
            same(true, sent.await(WAIT_MS, TimeUnit.MILLISECONDS));
            MessageConsumer consumer = session.createConsumer(session.createQueue("batch"));
            for (int number = 0; number < 100; number++) {
                same("b" + number, ((TextMessage) consumer.receive(WAIT_MS)).getText());
            }
        }
    }

    private static void settle() throws Exception {
        try (Connection connection = connect(amqps(""))) {
            Session session = connection.createSession(Session.CLIENT_ACKNOWLEDGE);
            MessageProducer producer = session.createProducer(session.createQueue("settle"));
            MessageConsumer consumer = session.createConsumer(session.createQueue("settle"));
            producer.send(session.createTextMessage("abandoned"));
            acknowledge(consumer.receive(WAIT_MS), MODIFIED_FAILED);
            Message again = consumer.receive(WAIT_MS);
            same(true, again.getJMSRedelivered());
            same(2, again.getIntProperty("JMSXDeliveryCount"));
            again.acknowledge();
            producer.send(session.createTextMessage("dead"));
            acknowledge(consumer.receive(WAIT_MS), REJECTED);
            TextMessage dead = (TextMessage) one(session, "settle/$DeadLetterQueue");
            same("dead", dead.getText());
            dead.acknowledge();
        }
    }

    private static void peek() throws Exception {
        try (Connection connection = connect(amqps(""))) {
            Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            MessageProducer producer = session.createProducer(session.createQueue("peek"));
            producer.send(session.createTextMessage("a"));
            producer.send(session.createTextMessage("b"));
            same(List.of("a", "b"), elements(session.createBrowser(session.createQueue("peek"))));
        }
    }

    private static List<String> elements(QueueBrowser browser) throws JMSException {
        List<String> bodies = new ArrayList<>();
        Enumeration<?> found = browser.getEnumeration();
        while (found.hasMoreElements()) {
            bodies.add(((TextMessage) found.nextElement()).getText());
        }
        return bodies;
    }

    /** A message group is a session; what a session's receiver needs (a filter) JMS cannot say, so it is refused. */
    private static void sessions() throws Exception {
        try (Connection connection = connect(amqps(""))) {
            Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            TextMessage message = session.createTextMessage("grouped");
            message.setStringProperty("JMSXGroupID", "s1");
            session.createProducer(session.createQueue("sessions")).send(message);
            refused(() -> session.createConsumer(session.createQueue("sessions")), "requires sessions");
        }
    }

    /** JMS schedules by a delay; it cannot cancel. */
    private static void schedule() throws Exception {
        try (Connection connection = connect(amqps(""))) {
            Session session = connection.createSession(Session.CLIENT_ACKNOWLEDGE);
            MessageProducer producer = session.createProducer(session.createQueue("schedule"));
            producer.setDeliveryDelay(1_500);
            long sent = System.currentTimeMillis();
            producer.send(session.createTextMessage("late"));
            Message got = one(session, "schedule");
            same(true, System.currentTimeMillis() - sent >= 1_500);
            got.acknowledge();
        }
    }

    private static void topics() throws Exception {
        // The test made the topic and its subscription: JMS cannot.
        try (Connection connection = connect(amqps(""))) {
            Session session = connection.createSession(Session.CLIENT_ACKNOWLEDGE);
            MessageProducer producer = session.createProducer(session.createTopic("topic"));
            for (String color : new String[] {"blue", "red"}) {
                TextMessage message = session.createTextMessage(color);
                message.setStringProperty("color", color);
                producer.send(message);
            }
            TextMessage got = (TextMessage) one(session, "topic/Subscriptions/red");
            same("red", got.getText());
            same("dark", got.getStringProperty("shade"));
            got.acknowledge();
        }
        otherConsumers();
    }

    /** A durable consumer of the subscription itself is one of its receivers. */
    private static void otherConsumers() throws Exception {
        try (Connection connection = connect(amqps("?jms.clientID=compat"))) {
            Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            MessageConsumer durable = session.createDurableConsumer(session.createTopic("topic/Subscriptions/red"), "red");
            TextMessage message = session.createTextMessage("durable");
            message.setStringProperty("color", "red");
            session.createProducer(session.createTopic("topic")).send(message);
            same("durable", ((TextMessage) durable.receive(WAIT_MS)).getText());
        }
    }

    private static void transactions() throws Exception {
        try (Connection connection = connect(amqps(""))) {
            Session session = connection.createSession(Session.SESSION_TRANSACTED);
            MessageProducer producer = session.createProducer(session.createQueue("transactions"));
            producer.send(session.createTextMessage("lost"));
            session.rollback();
            producer.send(session.createTextMessage("kept"));
            session.commit();
            MessageConsumer consumer = session.createConsumer(session.createQueue("transactions"));
            same("kept", ((TextMessage) consumer.receive(WAIT_MS)).getText());
            session.rollback();
            Message again = consumer.receive(WAIT_MS);
            same(true, again.getJMSRedelivered());
            session.commit();
            same(null, consumer.receive(500));
        }
    }

    private static void webSocket() throws Exception {
        String address = "amqpwss://localhost:" + PORT + "/$servicebus/websocket?transport.webSocketHeaders=x";
        try (Connection connection = connect(address.substring(0, address.indexOf('?')))) {
            Session session = connection.createSession(Session.CLIENT_ACKNOWLEDGE);
            session.createProducer(session.createQueue("websocket")).send(session.createTextMessage("through"));
            TextMessage got = (TextMessage) one(session, "websocket");
            same("through", got.getText());
            got.acknowledge();
        }
    }

    private static void large() throws Exception {
        byte[] body = new byte[5 * 1024 * 1024];
        body[body.length - 1] = 7;
        try (Connection connection = connect(amqps(""))) {
            Session session = connection.createSession(Session.CLIENT_ACKNOWLEDGE);
            BytesMessage message = session.createBytesMessage();
            message.writeBytes(body);
            session.createProducer(session.createQueue("large")).send(message);
            BytesMessage got = (BytesMessage) one(session, "large");
            same((long) body.length, got.getBodyLength());
            got.acknowledge();
        }
    }

    private static void wrongKey() {
        refused(() -> connect(amqps(""), "wrong").close(), "SASL");
    }

    private static void missingEntity() throws Exception {
        try (Connection connection = connect(amqps(""))) {
            Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            refused(() -> session.createProducer(session.createQueue("none")), "could not be found");
        }
        sessions();
    }

    /** Sends and receives while somebody kills the broker; ends when every message has come. */
    private static void kill() throws Exception {
        int count = Integer.parseInt(System.getenv("COMPAT_COUNT"));
        String address = "failover:(" + amqps("") + ")?failover.maxReconnectAttempts=-1&failover.reconnectDelay=100";
        Connection sending = connect(address);
        Thread sender = new Thread(() -> {
            try {
                Session session = sending.createSession(Session.AUTO_ACKNOWLEDGE);
                MessageProducer producer = session.createProducer(session.createQueue("kill"));
                for (int number = 0; number < count; number++) {
                    while (true) {
                        try {
                            producer.send(session.createTextMessage("k" + number));
                            break;
                        } catch (JMSException error) {
                            Thread.sleep(200);
                        }
                    }
                }
            } catch (Exception error) {
                System.err.println(error);
            }
        });
        sender.start();
        Set<String> found = new HashSet<>();
        try (Connection connection = connect(address)) {
            Session session = connection.createSession(Session.CLIENT_ACKNOWLEDGE);
            MessageConsumer consumer = session.createConsumer(session.createQueue("kill"));
            while (found.size() < count) {
                try {
                    TextMessage message = (TextMessage) consumer.receive(2_000);
                    if (message != null) {
                        // Noted first: the broker may die between the acknowledgement and its answer.
                        found.add(message.getText());
                        System.out.println("{\"received\": " + found.size() + "}");
                        message.acknowledge();
                    }
                } catch (JMSException error) {
                    Thread.sleep(200);
                }
            }
        }
        sending.close();
    }

    // --- clients ---

    private static String amqps(String options) {
        return "amqps://localhost:" + PORT + options;
    }

    private static Connection connect(String address) throws JMSException {
        return connect(address, part("SharedAccessKey"));
    }

    /** By SASL PLAIN: the policy's name and its key. */
    private static Connection connect(String address, String key) throws JMSException {
        Connection connection = new JmsConnectionFactory(part("SharedAccessKeyName"), key, address).createConnection();
        connection.start();
        return connection;
    }

    private static String part(String name) {
        Matcher found = Pattern.compile("(?:^|;)" + name + "=([^;]+)").matcher(CONNECTION);
        found.find();
        return found.group(1);
    }

    // --- checks ---

    private static Message one(Session session, String path) throws JMSException {
        Message message = session.createConsumer(session.createQueue(path)).receive(WAIT_MS);
        if (message == null) {
            throw new IllegalStateException("no message came from " + path);
        }
        return message;
    }

    private static void acknowledge(Message message, int how) throws JMSException {
        message.setIntProperty("JMS_AMQP_ACK_TYPE", how);
        message.acknowledge();
    }

    private static void same(Object wanted, Object found) {
        if (!Objects.equals(wanted, found)) {
            throw new IllegalStateException("wanted " + wanted + ", found " + found);
        }
    }

    private static void refused(Case action, String words) {
        try {
            action.run();
        } catch (Exception error) {
            if (!String.valueOf(error).contains(words)) {
                throw new IllegalStateException("refused otherwise: " + error);
            }
            return;
        }
        throw new IllegalStateException("not refused");
    }
}
