package compat;

import jakarta.jms.ConnectionFactory;
import org.apache.qpid.jms.JmsConnectionFactory;

/** Connections of Qpid JMS. */
final class Library {
    static ConnectionFactory factory(String name, String key, String host, String clientId) {
        String address = "failover:(amqps://" + host + ")?failover.maxReconnectAttempts=-1&failover.reconnectDelay=100";
        JmsConnectionFactory factory = new JmsConnectionFactory(name, key, address);
        if (clientId != null) {
            factory.setClientID(clientId);
        }
        return factory;
    }
}
