using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading.Tasks;
using System.Transactions;
using Azure.Messaging.ServiceBus;

/// <summary>What a TransactionScope may hold, committed and rolled back.</summary>
public static class Transactions
{
    private static TransactionScope Scope() => new TransactionScope(TransactionScopeAsyncFlowOption.Enabled);

    /// <summary>Runs the work in a scope that is completed or not.</summary>
    private static async Task Within(bool completed, Func<Task> work)
    {
        using (var scope = Scope())
        {
            await work();
            if (completed)
            {
                scope.Complete();
            }
        }
        if (!completed)
        {
            // The client does not wait for the answer to a rollback.
            await Task.Delay(300);
        }
    }

    private static async Task<string[]> Bodies(ServiceBusReceiver receiver) =>
        (await receiver.PeekMessagesAsync(100, 0)).Select(each => each.Body.ToString()).ToArray();

    public static async Task SendAndSettle()
    {
        await using var client = Bus.Client();
        var queue = await Bus.Queue();
        var sender = client.CreateSender(queue);
        await Within(true, async () =>
        {
            await sender.SendMessageAsync(new ServiceBusMessage("kept"));
            await sender.SendMessagesAsync(new[] { new ServiceBusMessage("two"), new ServiceBusMessage("three") });
        });
        await Within(false, () => sender.SendMessageAsync(new ServiceBusMessage("lost")));
        await using var receiver = client.CreateReceiver(queue);
        var message = await Bus.One(receiver);
        await Within(false, () => receiver.CompleteMessageAsync(message));
        Check.Same("kept", message.Body.ToString());
        await Within(true, async () =>
        {
            await receiver.CompleteMessageAsync(message);
            await sender.SendMessageAsync(new ServiceBusMessage("answer"));
        });
        await Check.Reason(ServiceBusFailureReason.MessageLockLost, () => receiver.CompleteMessageAsync(message));
        Check.SameList(new[] { "two", "three", "answer" }, await Bodies(receiver));
    }

    public static async Task Settlements()
    {
        await using var client = Bus.Client();
        var queue = await Bus.Queue();
        var sender = client.CreateSender(queue);
        await using var receiver = client.CreateReceiver(queue);
        foreach (var completed in new[] { false, true })
        {
            await sender.SendMessageAsync(new ServiceBusMessage("abandoned"));
            var message = await Bus.One(receiver);
            var changes = new Dictionary<string, object> { ["seen"] = true };
            await Within(completed, () => receiver.AbandonMessageAsync(message, changes));
            if (!completed)
            {
                await receiver.AbandonMessageAsync(message);
            }
            message = await Bus.One(receiver);
            Check.Same(2, message.DeliveryCount);
            Check.Same(completed, message.ApplicationProperties.ContainsKey("seen"));
            await Within(completed, () => receiver.DeferMessageAsync(message));
            if (completed)
            {
                message = await receiver.ReceiveDeferredMessageAsync(message.SequenceNumber);
            }
            await receiver.CompleteMessageAsync(message);
        }
    }

    public static async Task DeadLetter()
    {
        await using var client = Bus.Client();
        var queue = await Bus.Queue();
        await client.CreateSender(queue).SendMessageAsync(new ServiceBusMessage("dead"));
        await using var receiver = client.CreateReceiver(queue);
        var message = await Bus.One(receiver);
        await Within(false, () => receiver.DeadLetterMessageAsync(message, "why", "because"));
        var changes = new Dictionary<string, object> { ["extra"] = 1 };
        await Within(true, () => receiver.DeadLetterMessageAsync(message, changes, "why", "because"));
        await using var dead = client.CreateReceiver(
            queue, new ServiceBusReceiverOptions { SubQueue = SubQueue.DeadLetter });
        var letter = await Bus.One(dead);
        Check.Same("why", letter.DeadLetterReason);
        Check.Same("because", letter.DeadLetterErrorDescription);
        Check.Same<object>(1, letter.ApplicationProperties["extra"]);
        await Within(true, () => dead.CompleteMessageAsync(letter));
        Check.SameList(new string[0], await Bodies(dead));
    }

    public static async Task Deferred()
    {
        await using var client = Bus.Client();
        var queue = await Bus.Queue();
        await client.CreateSender(queue).SendMessageAsync(new ServiceBusMessage("aside"));
        await using var receiver = client.CreateReceiver(queue);
        var message = await Bus.One(receiver);
        await receiver.DeferMessageAsync(message);
        var deferred = await receiver.ReceiveDeferredMessageAsync(message.SequenceNumber);
        await Within(false, () => receiver.CompleteMessageAsync(deferred));
        await Within(true, () => receiver.CompleteMessageAsync(deferred));
        await Check.Reason(ServiceBusFailureReason.MessageLockLost, () => receiver.CompleteMessageAsync(deferred));
    }

    public static async Task Schedule()
    {
        await using var client = Bus.Client();
        var queue = await Bus.Queue();
        var sender = client.CreateSender(queue);
        await using var receiver = client.CreateReceiver(queue);
        var due = DateTimeOffset.UtcNow.AddHours(1);
        await Within(false, () => sender.ScheduleMessageAsync(new ServiceBusMessage("never"), due));
        long number = 0;
        await Within(true, async () => number = await sender.ScheduleMessageAsync(new ServiceBusMessage("later"), due));
        Check.SameList(new[] { "later" }, await Bodies(receiver));
        Check.Same(number, (await receiver.PeekMessageAsync(0)).SequenceNumber);
    }

    public static async Task Cancel()
    {
        await using var client = Bus.Client();
        var queue = await Bus.Queue();
        var sender = client.CreateSender(queue);
        await using var receiver = client.CreateReceiver(queue);
        var number = await sender.ScheduleMessageAsync(new ServiceBusMessage("later"), DateTimeOffset.UtcNow.AddHours(1));
        await Within(false, () => sender.CancelScheduledMessageAsync(number));
        Check.SameList(new[] { "later" }, await Bodies(receiver));
        await Within(true, async () =>
        {
            await sender.CancelScheduledMessageAsync(number);
            await sender.SendMessageAsync(new ServiceBusMessage("instead"));
        });
        Check.SameList(new[] { "instead" }, await Bodies(receiver));
    }

    public static async Task SessionState()
    {
        await using var client = Bus.Client();
        var queue = await Bus.Queue(options => options.RequiresSession = true);
        var sender = client.CreateSender(queue);
        await sender.SendMessageAsync(new ServiceBusMessage("step") { SessionId = "s" });
        await using var receiver = await client.AcceptSessionAsync(queue, "s");
        var message = await Bus.One(receiver);
        await receiver.SetSessionStateAsync(new BinaryData("0"));
        await Within(false, async () =>
        {
            await receiver.SetSessionStateAsync(new BinaryData("1"));
            await receiver.CompleteMessageAsync(message);
        });
        Check.Same("0", (await receiver.GetSessionStateAsync()).ToString());
        await Within(true, async () =>
        {
            await receiver.SetSessionStateAsync(new BinaryData("1"));
            await receiver.SetSessionStateAsync(new BinaryData("2"));
            await receiver.CompleteMessageAsync(message);
            await sender.SendMessageAsync(new ServiceBusMessage("next") { SessionId = "s" });
        });
        Check.Same("2", (await receiver.GetSessionStateAsync()).ToString());
        Check.Same("next", (await Bus.One(receiver)).Body.ToString());
        await Within(true, () => receiver.SetSessionStateAsync(null));
        Check.True(await receiver.GetSessionStateAsync() == null, "the state was not cleared");
    }

    public static async Task Renew()
    {
        await using var client = Bus.Client();
        var queue = await Bus.Queue();
        await client.CreateSender(queue).SendMessageAsync(new ServiceBusMessage("kept"));
        await using var receiver = client.CreateReceiver(queue);
        var message = await Bus.One(receiver);
        var before = message.LockedUntil;
        await Within(true, async () =>
        {
            await receiver.RenewMessageLockAsync(message);
            await receiver.CompleteMessageAsync(message);
        });
        Check.True(message.LockedUntil > before, "it was not renewed");
    }

    /// <summary>The client puts every request inside a scope into the transaction, those that only read, too.</summary>
    public static async Task Reads()
    {
        await using var client = Bus.Client();
        var queue = await Bus.Queue(options => options.RequiresSession = true);
        await client.CreateSender(queue).SendMessagesAsync(
            new[] { "deferred", "kept" }.Select(body => new ServiceBusMessage(body) { SessionId = "s" }));
        await using var receiver = await client.AcceptSessionAsync(queue, "s");
        var aside = await Bus.One(receiver);
        await receiver.DeferMessageAsync(aside);
        await Within(true, async () =>
        {
            Check.SameList(new[] { "deferred", "kept" }, await Bodies(receiver));
            Check.True(await receiver.GetSessionStateAsync() == null, "a state");
            await receiver.RenewSessionLockAsync();
            await receiver.CompleteMessageAsync(await receiver.ReceiveDeferredMessageAsync(aside.SequenceNumber));
            await receiver.CompleteMessageAsync(await Bus.One(receiver));
        });
        Check.SameList(new string[0], await Bodies(receiver));
    }

    /// <summary>Work that fails inside a scope leaves nothing behind.</summary>
    public static async Task Refused()
    {
        await using var client = Bus.Client();
        var queue = await Bus.Queue();
        var sender = client.CreateSender(queue);
        await using var receiver = client.CreateReceiver(queue);
        await sender.SendMessageAsync(new ServiceBusMessage("once"));
        var message = await Bus.One(receiver);
        await receiver.CompleteMessageAsync(message);
        using (Scope())
        {
            await sender.SendMessageAsync(new ServiceBusMessage("with it"));
            await Check.Reason(ServiceBusFailureReason.MessageLockLost, () => receiver.CompleteMessageAsync(message));
        }
        await Task.Delay(300);
        Check.SameList(new string[0], await Bodies(receiver));
    }

    public static async Task Subscription()
    {
        var topic = Bus.Name("topic");
        await Bus.Administrator().CreateTopicAsync(topic);
        await Bus.Administrator().CreateSubscriptionAsync(topic, "all");
        await using var client = Bus.Client();
        var sender = client.CreateSender(topic);
        await sender.SendMessageAsync(new ServiceBusMessage("first"));
        await using var receiver = client.CreateReceiver(topic, "all");
        var message = await Bus.One(receiver);
        await Within(true, async () =>
        {
            await sender.SendMessageAsync(new ServiceBusMessage("second"));
            await receiver.CompleteMessageAsync(message);
        });
        Check.SameList(new[] { "second" }, await Bodies(receiver));
    }

    /// <summary>Two queues need a client for transactions across entities.</summary>
    public static async Task TwoQueues()
    {
        await using var client = Bus.Client();
        var (one, other) = (await Bus.Queue(), await Bus.Queue());
        using (Scope())
        {
            await client.CreateSender(one).SendMessageAsync(new ServiceBusMessage("a"));
            var error = await Check.Throws<InvalidOperationException>(
                () => client.CreateSender(other).SendMessageAsync(new ServiceBusMessage("b")));
            Check.True(error.Message.StartsWith("Local transactions cannot span multiple top-level"), error.Message);
        }
        await Task.Delay(300);
        Check.SameList(new string[0], await Bodies(client.CreateReceiver(one)));
        Check.SameList(new string[0], await Bodies(client.CreateReceiver(other)));
    }

    public static async Task CrossEntity()
    {
        var (inbox, outbox) = (await Bus.Queue(), await Bus.Queue());
        var topic = Bus.Name("topic");
        await Bus.Administrator().CreateTopicAsync(topic);
        await Bus.Administrator().CreateSubscriptionAsync(topic, "all");
        var options = Bus.Options();
        options.EnableCrossEntityTransactions = true;
        await using var plain = Bus.Client();
        await using var client = new ServiceBusClient(Bus.Connection, options);
        await plain.CreateSender(inbox).SendMessageAsync(new ServiceBusMessage("order"));
        await using var receiver = client.CreateReceiver(inbox);
        var message = await Bus.One(receiver);
        foreach (var completed in new[] { false, true })
        {
            await Within(completed, async () =>
            {
                await receiver.CompleteMessageAsync(message);
                await client.CreateSender(outbox).SendMessageAsync(new ServiceBusMessage("bill"));
                await client.CreateSender(topic).SendMessageAsync(new ServiceBusMessage("news"));
            });
            Check.SameList(completed ? new[] { "bill" } : new string[0], await Bodies(plain.CreateReceiver(outbox)));
            Check.SameList(completed ? new[] { "news" } : new string[0], await Bodies(plain.CreateReceiver(topic, "all")));
        }
        Check.SameList(new string[0], await Bodies(plain.CreateReceiver(inbox)));
    }

    public static async Task Parallel()
    {
        await using var client = Bus.Client();
        var queue = await Bus.Queue();
        var sender = client.CreateSender(queue);
        await Task.WhenAll(Enumerable.Range(0, 30).Select(number =>
            Within(number % 3 != 0, () => sender.SendMessageAsync(new ServiceBusMessage($"{number}")))));
        var found = await Bodies(client.CreateReceiver(queue));
        Check.SameList(
            Enumerable.Range(0, 30).Where(number => number % 3 != 0), found.Select(int.Parse).OrderBy(number => number));
    }

    /// <summary>A processor's handler that answers and completes in one transaction.</summary>
    public static async Task Processor()
    {
        var (inbox, outbox) = (await Bus.Queue(), await Bus.Queue());
        var options = Bus.Options();
        options.EnableCrossEntityTransactions = true;
        await using var plain = Bus.Client();
        await plain.CreateSender(inbox).SendMessagesAsync(
            Enumerable.Range(0, 20).Select(number => new ServiceBusMessage($"{number}")));
        await using var client = new ServiceBusClient(Bus.Connection, options);
        await using var processor = client.CreateProcessor(
            inbox, new ServiceBusProcessorOptions { MaxConcurrentCalls = 4, AutoCompleteMessages = false });
        var sender = client.CreateSender(outbox);
        processor.ProcessMessageAsync += async arguments =>
        {
            using var scope = Scope();
            await sender.SendMessageAsync(new ServiceBusMessage(arguments.Message.Body));
            await arguments.CompleteMessageAsync(arguments.Message);
            scope.Complete();
        };
        processor.ProcessErrorAsync += _ => Task.CompletedTask;
        await processor.StartProcessingAsync();
        var receiver = plain.CreateReceiver(outbox);
        await Processors.Until(() => Bodies(receiver).GetAwaiter().GetResult().Length >= 20);
        await processor.StopProcessingAsync();
        Check.SameList(
            Enumerable.Range(0, 20), (await Bodies(receiver)).Select(int.Parse).OrderBy(number => number));
    }
}
