package compat;

import com.microsoft.azure.servicebus.jms.ServiceBusJmsConnectionFactory;
import com.microsoft.azure.servicebus.jms.ServiceBusJmsConnectionFactorySettings;
import jakarta.jms.ConnectionFactory;

/** Connections of Azure's own JMS library. */
final class Library {
    static ConnectionFactory factory(String name, String key, String host, String clientId) {
        ServiceBusJmsConnectionFactorySettings settings = new ServiceBusJmsConnectionFactorySettings();
        settings.setShouldReconnect(true);
        ServiceBusJmsConnectionFactory factory = new ServiceBusJmsConnectionFactory(name, key, host, settings);
        if (clientId != null) {
            factory.setClientId(clientId);
        }
        return factory;
    }
}
