package compat;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.Destination;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.TemporaryTopic;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Enumeration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/** JMS 2.0 on a Premium namespace: runs the cases named on the command line and prints one line of JSON for each. */
public final class Main {
    private static final int WAIT_MS = 15_000;
    private static final int NOTHING_MS = 300;

    private interface Case {
        void run() throws Exception;
    }

    private static final Map<String, Case> CASES = new LinkedHashMap<>();

    static {
        CASES.put("queue", Main::queue);
        CASES.put("transacted", Main::transacted);
        CASES.put("too-large", Main::tooLarge);
        CASES.put("browser", Main::browser);
        CASES.put("selector", Main::selector);
        CASES.put("selector-headers", Main::selectorHeaders);
        CASES.put("selector-browser", Main::selectorBrowser);
        CASES.put("selector-bad", Main::selectorBad);
        CASES.put("topic", Main::topic);
        CASES.put("topic-selector", Main::topicSelector);
        CASES.put("durable", Main::durable);
        CASES.put("durable-selector", Main::durableSelector);
        CASES.put("durable-twice", Main::durableTwice);
        CASES.put("shared", Main::shared);
        CASES.put("shared-durable", Main::sharedDurable);
        CASES.put("unsubscribe", Main::unsubscribe);
        CASES.put("unsubscribe-unknown", Main::unsubscribeUnknown);
        CASES.put("temporary-queue", Main::temporaryQueue);
        CASES.put("temporary-topic", Main::temporaryTopic);
        CASES.put("temporary-deleted", Main::temporaryDeleted);
        CASES.put("delay", Main::delay);
        CASES.put("relay", Main::relay);
        CASES.put("kill", Main::kill);
    }

    public static void main(String[] names) {
        int failed = 0;
        for (String name : names) {
            try {
                CASES.get(name).run();
                System.out.println("{\"case\": \"" + name + "\", \"ok\": true}");
            } catch (Throwable error) {
                failed++;
                String text = String.valueOf(error).replaceAll("[^ -~]", " ").replace("\\", "/").replace("\"", "'");
                System.out.println("{\"case\": \"" + name + "\", \"ok\": false, \"detail\": \"" + text + "\"}");
            }
        }
        System.exit(failed == 0 ? 0 : 1);
    }

    // --- queues ---

    private static void queue() throws Exception {
        try (Connection connection = connect(null)) {
            Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
            TextMessage message = session.createTextMessage("hello");
            message.setIntProperty("n", 5);
            message.setJMSCorrelationID("c");
            session.createProducer(session.createQueue("plain")).send(message);
            TextMessage got = (TextMessage) session.createConsumer(session.createQueue("plain")).receive(WAIT_MS);
            same("hello", got.getText());
            same(5, got.getIntProperty("n"));
            same(message.getJMSMessageID(), got.getJMSMessageID());
            got.acknowledge();
        }
    }

    private static void transacted() throws Exception {
        try (Connection connection = connect(null)) {
            Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
            Queue queue = session.createQueue("transacted");
            MessageProducer producer = session.createProducer(queue);
            producer.send(session.createTextMessage("lost"));
            session.rollback();
            producer.send(session.createTextMessage("kept"));
            session.commit();
            MessageConsumer consumer = session.createConsumer(queue);
            same("kept", text(consumer));
            session.commit();
            same(null, consumer.receive(NOTHING_MS));
        }
    }

    /** 300 kB are over the limit of the queue, and the client is told so. */
    private static void tooLarge() throws Exception {
        try (Connection connection = connect(null)) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            BytesMessage message = session.createBytesMessage();
            message.writeBytes(new byte[300_000]);
            refused(() -> session.createProducer(session.createQueue("plain")).send(message), "exceeds the limit");
        }
    }

    private static void browser() throws Exception {
        try (Connection connection = connect(null)) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Queue queue = session.createQueue("browsed");
            send(session, queue, "a", "bb");
            same(List.of("a", "bb"), elements(session.createBrowser(queue)));
        }
    }

    // --- selectors ---

    private static void selector() throws Exception {
        try (Connection connection = connect(null)) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Queue queue = session.createQueue("selected");
            send(session, queue, "a", "bb", "c", "dd");
            MessageConsumer two = session.createConsumer(queue, "length = 2 AND text LIKE 'd%'");
            same("dd", text(two));
            same(null, two.receive(NOTHING_MS));
            send(session, queue, "de");
            same("de", text(two));
            same(null, two.receiveNoWait());
            two.close();
            MessageConsumer rest = session.createConsumer(queue);
            same(List.of("a", "bb", "c"), List.of(text(rest), text(rest), text(rest)));
        }
    }

    private static void selectorHeaders() throws Exception {
        try (Connection connection = connect(null)) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Queue queue = session.createQueue("headers");
            MessageProducer producer = session.createProducer(queue);
            TextMessage message = session.createTextMessage("x");
            message.setJMSCorrelationID("order 7");
            message.setJMSType("kind");
            producer.send(session.createTextMessage("other"));
            producer.send(message, DeliveryMode.PERSISTENT, 9, 0);
            String[] selectors = {
                "JMSMessageID = '" + message.getJMSMessageID() + "'",
                "JMSCorrelationID = 'order 7' AND JMSType = 'kind'",
                "JMSPriority = 9 AND JMSDeliveryMode = 'PERSISTENT'",
                "JMSTimestamp = " + message.getJMSTimestamp() + " AND JMSPriority > 4",
            };
            for (String selector : selectors) {
                same(List.of("x"), elements(session.createBrowser(queue, selector)));
            }
            same("x", text(session.createConsumer(queue, selectors[0])));
        }
    }

    private static void selectorBrowser() throws Exception {
        try (Connection connection = connect(null)) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Queue queue = session.createQueue("browsed2");
            send(session, queue, "a", "bb", "c", "dd");
            same(List.of("bb", "dd"), elements(session.createBrowser(queue, "length BETWEEN 2 AND 3")));
        }
    }

    private static void selectorBad() throws Exception {
        try (Connection connection = connect(null)) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            // The client refuses what it cannot parse, and the broker what JMS does not allow.
            refused(() -> session.createConsumer(session.createQueue("plain"), "length >"), "InvalidSelector");
            refused(() -> session.createConsumer(session.createQueue("plain"), "JMSExpiration > 0"), "cannot use");
        }
    }

    // --- topics ---

    private static void topic() throws Exception {
        try (Connection connection = connect(null)) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Topic topic = session.createTopic("events");
            MessageConsumer first = session.createConsumer(topic);
            MessageConsumer second = session.createConsumer(topic);
            send(session, topic, "a");
            same("a", text(first));
            same("a", text(second));
            first.close();
            send(session, topic, "b");
            same("b", text(second));
        }
    }

    private static void topicSelector() throws Exception {
        try (Connection connection = connect(null)) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Topic topic = session.createTopic("events");
            MessageConsumer two = session.createConsumer(topic, "length = 2");
            send(session, topic, "a", "bb", "c", "dd");
            same(List.of("bb", "dd"), List.of(text(two), text(two)));
            same(null, two.receive(NOTHING_MS));
        }
    }

    private static void durable() throws Exception {
        for (int life = 0; life < 2; life++) {
            try (Connection connection = connect("durable-client")) {
                Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
                Topic topic = session.createTopic("events");
                MessageConsumer consumer = session.createDurableConsumer(topic, "daily");
                if (life == 1) {
                    same("while away", text(consumer));
                }
                consumer.close();
                send(session, topic, "while away");
            }
        }
        try (Connection connection = connect("durable-client")) {
            connection.createSession(false, Session.AUTO_ACKNOWLEDGE).unsubscribe("daily");
        }
    }

    private static void durableSelector() throws Exception {
        try (Connection connection = connect("choosy-client")) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Topic topic = session.createTopic("events");
            session.createDurableConsumer(topic, "choosy", "length = 2", false).close();
            send(session, topic, "a", "bb");
            MessageConsumer same = session.createDurableConsumer(topic, "choosy", "length = 2", false);
            same("bb", text(same));
            same.close();
            send(session, topic, "cc");
            // Another selector makes the subscription anew.
            MessageConsumer other = session.createDurableConsumer(topic, "choosy", "length = 1", false);
            send(session, topic, "dd", "e");
            same("e", text(other));
            same(null, other.receive(NOTHING_MS));
            other.close();
            session.unsubscribe("choosy");
        }
    }

    private static void durableTwice() throws Exception {
        try (Connection first = connect("busy-client"); Connection second = connect("busy-client")) {
            Session session = first.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageConsumer held = session.createDurableConsumer(session.createTopic("events"), "one");
            Session other = second.createSession(false, Session.AUTO_ACKNOWLEDGE);
            refused(() -> other.createDurableConsumer(other.createTopic("events"), "one"), "already a subscriber");
            refused(() -> other.unsubscribe("one"), "active consumer");
            held.close();
            other.unsubscribe("one");
        }
    }

    private static void shared() throws Exception {
        try (Connection first = connect(null); Connection second = connect(null)) {
            Session one = first.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Session two = second.createSession(false, Session.AUTO_ACKNOWLEDGE);
            share(one, two, one.createSharedConsumer(one.createTopic("events"), "crew"),
                two.createSharedConsumer(two.createTopic("events"), "crew"));
        }
    }

    private static void sharedDurable() throws Exception {
        try (Connection first = connect(null); Connection second = connect(null)) {
            Session one = first.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Session two = second.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageConsumer left = one.createSharedDurableConsumer(one.createTopic("events"), "team");
            MessageConsumer right = two.createSharedDurableConsumer(two.createTopic("events"), "team");
            share(one, two, left, right);
            left.close();
            right.close();
            send(one, one.createTopic("events"), "later");
            MessageConsumer again = two.createSharedDurableConsumer(two.createTopic("events"), "team");
            same("later", text(again));
            again.close();
            one.unsubscribe("team");
        }
    }

    /** Each message comes to one of the two consumers. */
    private static void share(Session one, Session two, MessageConsumer left, MessageConsumer right) throws Exception {
        List<String> sent = new ArrayList<>();
        for (int number = 10; number < 30; number++) {
            sent.add("m" + number);
        }
        send(one, one.createTopic("events"), sent.toArray(new String[0]));
        List<String> got = new ArrayList<>();
        for (int turn = 0; turn < 200 && got.size() < sent.size(); turn++) {
            for (MessageConsumer consumer : List.of(left, right)) {
                TextMessage message = (TextMessage) consumer.receive(50);
                if (message != null) {
                    got.add(message.getText());
                }
            }
        }
        Collections.sort(got);
        same(sent, got);
    }

    private static void unsubscribe() throws Exception {
        try (Connection connection = connect("leaving-client")) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Topic topic = session.createTopic("events");
            session.createDurableConsumer(topic, "leaving").close();
            send(session, topic, "never seen");
            session.unsubscribe("leaving");
            MessageConsumer anew = session.createDurableConsumer(topic, "leaving");
            same(null, anew.receive(NOTHING_MS));
            anew.close();
            session.unsubscribe("leaving");
        }
    }

    private static void unsubscribeUnknown() throws Exception {
        try (Connection connection = connect("unknown-client")) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            refused(() -> session.unsubscribe("unknown"), "no durable subscription");
        }
    }

    // --- temporary queues and topics ---

    private static void temporaryQueue() throws Exception {
        try (Connection asking = connect(null); Connection answering = connect(null)) {
            Session session = asking.createSession(false, Session.AUTO_ACKNOWLEDGE);
            TemporaryQueue replies = session.createTemporaryQueue();
            MessageConsumer consumer = session.createConsumer(replies);
            TextMessage question = session.createTextMessage("question");
            question.setJMSReplyTo(replies);
            session.createProducer(session.createQueue("requests")).send(question);
            Session other = answering.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Message got = other.createConsumer(other.createQueue("requests")).receive(WAIT_MS);
            other.createProducer(null).send(got.getJMSReplyTo(), other.createTextMessage("answer"));
            same("answer", text(consumer));
        }
    }

    private static void temporaryTopic() throws Exception {
        try (Connection connection = connect(null)) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            TemporaryTopic topic = session.createTemporaryTopic();
            MessageConsumer first = session.createConsumer(topic);
            MessageConsumer second = session.createConsumer(topic);
            send(session, topic, "a");
            same(List.of("a", "a"), List.of(text(first), text(second)));
        }
    }

    private static void temporaryDeleted() throws Exception {
        Destination kept;
        try (Connection connection = connect(null)) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            TemporaryQueue queue = session.createTemporaryQueue();
            String name = queue.getQueueName();
            send(session, queue, "a");
            queue.delete();
            refused(() -> session.createProducer(session.createQueue(name)), "could not be found");
            kept = session.createTemporaryTopic();
        }
        String gone = ((TemporaryTopic) kept).getTopicName();
        try (Connection connection = connect(null)) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            refused(() -> session.createProducer(session.createTopic(gone)), "could not be found");
        }
    }

    // --- delay and relay ---

    private static void delay() throws Exception {
        try (Connection connection = connect(null)) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Queue queue = session.createQueue("delayed");
            MessageProducer producer = session.createProducer(queue);
            producer.setDeliveryDelay(1_500);
            long sent = System.currentTimeMillis();
            producer.send(session.createTextMessage("late"));
            MessageConsumer consumer = session.createConsumer(queue);
            same("late", text(consumer));
            same(true, System.currentTimeMillis() - sent >= 1_500);
        }
    }

    private static void relay() throws Exception {
        try (Connection connection = connect(null)) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageConsumer events = session.createConsumer(session.createTopic("events"));
            MessageProducer producer = session.createProducer(null);
            producer.send(session.createQueue("relayed"), session.createTextMessage("to the queue"));
            producer.send(session.createTopic("events"), session.createTextMessage("to the topic"));
            same("to the queue", text(session.createConsumer(session.createQueue("relayed"))));
            same("to the topic", text(events));
            refused(() -> producer.send(session.createQueue("none"), session.createTextMessage("x")), "could not be found");
        }
    }

    // --- kill -9 ---

    /** Says "ready", waits until somebody has killed the broker and started it again, and goes on with what it had. */
    private static void kill() throws Exception {
        try (Connection connection = connect("kill-client")) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Topic topic = session.createTopic("events");
            Queue queue = session.createQueue("killed");
            MessageConsumer selected = session.createConsumer(queue, "length = 2");
            MessageConsumer durable = session.createDurableConsumer(topic, "survivor", "length = 2", false);
            MessageConsumer volatileOne = session.createConsumer(topic, "length = 2");
            MessageConsumer shared = session.createSharedConsumer(topic, "crew");
            MessageConsumer sharedDurable = session.createSharedDurableConsumer(topic, "team");
            session.createDurableConsumer(topic, "away").close();
            TemporaryQueue replies = session.createTemporaryQueue();
            MessageConsumer answers = session.createConsumer(replies);
            TemporaryTopic notes = session.createTemporaryTopic();
            MessageConsumer noted = session.createConsumer(notes);
            send(session, queue, "a", "bb");
            same("bb", text(selected));
            send(session, topic, "cc");
            for (MessageConsumer each : List.of(durable, volatileOne, shared, sharedDurable)) {
                same("cc", text(each));
            }
            send(session, replies, "before");
            same("before", text(answers));
            System.out.println("{\"ready\": true}");
            System.out.flush();
            System.in.read();
            send(session, queue, "d", "ee");
            same("ee", text(selected));
            send(session, topic, "f", "gg");
            same("gg", text(durable));
            same("gg", text(volatileOne));
            same(List.of("f", "gg"), List.of(text(shared), text(shared)));
            same(List.of("f", "gg"), List.of(text(sharedDurable), text(sharedDurable)));
            // What nobody received meanwhile is still there.
            MessageConsumer back = session.createDurableConsumer(topic, "away");
            same(List.of("cc", "f", "gg"), List.of(text(back), text(back), text(back)));
            send(session, replies, "after");
            same("after", text(answers));
            send(session, notes, "noted");
            same("noted", text(noted));
            for (MessageConsumer each : List.of(durable, sharedDurable, back)) {
                each.close();
            }
            for (String name : List.of("survivor", "team", "away")) {
                session.unsubscribe(name);
            }
        }
    }

    // --- parts ---

    private static Connection connect(String clientId) throws JMSException {
        String host = "localhost:" + System.getenv("COMPAT_PORT");
        Connection connection = Library
            .factory(System.getenv("COMPAT_KEY_NAME"), System.getenv("COMPAT_KEY"), host, clientId)
            .createConnection();
        connection.start();
        return connection;
    }

    private static void send(Session session, Destination destination, String... texts) throws JMSException {
        MessageProducer producer = session.createProducer(destination);
        for (String text : texts) {
            TextMessage message = session.createTextMessage(text);
            message.setStringProperty("text", text);
            message.setIntProperty("length", text.length());
            producer.send(message);
        }
        producer.close();
    }

    private static String text(MessageConsumer consumer) throws JMSException {
        TextMessage message = (TextMessage) consumer.receive(WAIT_MS);
        return message == null ? null : message.getText();
    }

    private static List<String> elements(QueueBrowser browser) throws JMSException {
        List<String> bodies = new ArrayList<>();
        Enumeration<?> found = browser.getEnumeration();
        while (found.hasMoreElements()) {
            bodies.add(((TextMessage) found.nextElement()).getText());
        }
        return bodies;
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
