package app;

import com.azure.spring.messaging.implementation.annotation.EnableAzureMessaging;
import com.azure.spring.messaging.servicebus.core.ServiceBusTemplate;
import com.azure.spring.messaging.servicebus.implementation.core.annotation.ServiceBusListener;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.messaging.support.MessageBuilder;

/** Sends with a template, receives with a listener, and says whether the message came. */
@SpringBootApplication
@EnableAzureMessaging
public class Main {
    private static final CountDownLatch RECEIVED = new CountDownLatch(3);

    @ServiceBusListener(destination = "orders")
    public void onOrder(String order) {
        System.out.println("received " + order);
        RECEIVED.countDown();
    }

    public static void main(String[] arguments) throws InterruptedException {
        ConfigurableApplicationContext context = SpringApplication.run(Main.class, arguments);
        ServiceBusTemplate template = context.getBean(ServiceBusTemplate.class);
        for (int number = 1; number <= 3; number++) {
            template.send("orders", MessageBuilder.withPayload("order " + number).build());
        }
        boolean all = RECEIVED.await(30, TimeUnit.SECONDS);
        context.close();
        System.exit(all ? 0 : 1);
    }
}
