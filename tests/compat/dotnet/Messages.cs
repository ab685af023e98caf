using System;
using System.Collections.Generic;
using System.Linq;
using System.Reflection;
using System.Threading;
using System.Threading.Tasks;
using Azure.Messaging.ServiceBus;
using Azure.Messaging.ServiceBus.Administration;

/// <summary>Sending, receiving, settling: what every client of the table does, and the rest of this one's.</summary>
public static class Messages
{
    public static async Task Send()
    {
        await using var client = Bus.Client();
        var message = new ServiceBusMessage("hello") { MessageId = "m1", TimeToLive = TimeSpan.FromDays(1) };
        message.ApplicationProperties["n"] = 5;
        await client.CreateSender("send").SendMessageAsync(message);
        await using var receiver = client.CreateReceiver("send");
        var got = await Bus.One(receiver);
        Check.Same("hello", got.Body.ToString());
        Check.Same("m1", got.MessageId);
        Check.Same<object>(5, got.ApplicationProperties["n"]);
        Check.Same(TimeSpan.FromDays(1), got.TimeToLive);
        await receiver.CompleteMessageAsync(got);
    }

    /// <summary>Every property a message has, and every type that an application property may have.</summary>
    public static async Task Properties()
    {
        var values = new Dictionary<string, object>
        {
            ["byte"] = (byte)1, ["sbyte"] = (sbyte)-1, ["char"] = 'c', ["short"] = (short)-2, ["ushort"] = (ushort)2,
            ["int"] = 3, ["uint"] = 3u, ["long"] = 4L, ["ulong"] = 4ul, ["float"] = 1.5f, ["double"] = 2.5,
            ["decimal"] = 3.25m, ["bool"] = true, ["guid"] = Guid.NewGuid(), ["string"] = "text",
            ["uri"] = new Uri("http://localhost/"), ["time"] = new DateTime(2026, 11, 1, 2, 3, 4, DateTimeKind.Utc),
            ["offset"] = new DateTimeOffset(2026, 11, 1, 2, 3, 4, TimeSpan.Zero), ["span"] = TimeSpan.FromMinutes(5),
            ["null"] = null,
        };
        var message = new ServiceBusMessage(new byte[] { 1, 2, 3 })
        {
            MessageId = "id", ContentType = "application/json", CorrelationId = "correlation", PartitionKey = "key",
            ReplyTo = "answers", ReplyToSessionId = "s", Subject = "subject", To = "to",
        };
        foreach (var pair in values)
        {
            message.ApplicationProperties[pair.Key] = pair.Value;
        }
        var queue = await Bus.Queue();
        await using var client = Bus.Client();
        await client.CreateSender(queue).SendMessageAsync(message);
        var got = await Bus.One(client.CreateReceiver(queue));
        Check.SameList(new byte[] { 1, 2, 3 }, got.Body.ToArray());
        Check.SameList(
            new[] { "id", "application/json", "correlation", "key", "answers", "s", "subject", "to" },
            new[]
            {
                got.MessageId, got.ContentType, got.CorrelationId, got.PartitionKey, got.ReplyTo, got.ReplyToSessionId,
                got.Subject, got.To,
            });
        foreach (var pair in values)
        {
            Check.Same(pair.Value, got.ApplicationProperties[pair.Key], pair.Key);
            Check.Same(pair.Value?.GetType(), got.ApplicationProperties[pair.Key]?.GetType(), pair.Key);
        }
        Check.Same(1, got.DeliveryCount);
        Check.Same(ServiceBusMessageState.Active, got.State);
        Check.True(got.LockedUntil > DateTimeOffset.UtcNow, "it is not locked");
    }

    public static async Task Batch()
    {
        await using var client = Bus.Client();
        var sender = client.CreateSender("batch");
        using var batch = await sender.CreateMessageBatchAsync();
        for (var number = 0; number < 100; number++)
        {
            Check.True(batch.TryAddMessage(new ServiceBusMessage($"b{number}")), "the batch is full");
        }
        await sender.SendMessagesAsync(batch);
        await using var receiver = client.CreateReceiver("batch");
        var found = new HashSet<string>();
        while (found.Count < 100)
        {
            foreach (var message in await receiver.ReceiveMessagesAsync(100 - found.Count, Bus.Wait))
            {
                found.Add(message.Body.ToString());
                await receiver.CompleteMessageAsync(message);
            }
        }
    }

    public static async Task Settle()
    {
        await using var client = Bus.Client();
        var sender = client.CreateSender("settle");
        await using var receiver = client.CreateReceiver("settle");
        await sender.SendMessageAsync(new ServiceBusMessage("abandoned"));
        var changes = new Dictionary<string, object> { ["seen"] = 1L };
        await receiver.AbandonMessageAsync(await Bus.One(receiver), changes);
        var again = await Bus.One(receiver);
        Check.Same(2, again.DeliveryCount);
        Check.Same<object>(1L, again.ApplicationProperties["seen"]);
        await receiver.CompleteMessageAsync(again);

        await sender.SendMessageAsync(new ServiceBusMessage("deferred"));
        var aside = await Bus.One(receiver);
        await receiver.DeferMessageAsync(aside);
        var deferred = await receiver.ReceiveDeferredMessageAsync(aside.SequenceNumber);
        Check.Same(ServiceBusMessageState.Deferred, deferred.State);
        await receiver.CompleteMessageAsync(deferred);

        await sender.SendMessageAsync(new ServiceBusMessage("dead"));
        await receiver.DeadLetterMessageAsync(await Bus.One(receiver), "why", "because");
        await using var dead = client.CreateReceiver(
            "settle", new ServiceBusReceiverOptions { SubQueue = SubQueue.DeadLetter });
        var letter = await Bus.One(dead);
        Check.Same("why", letter.DeadLetterReason);
        Check.Same("because", letter.DeadLetterErrorDescription);
        await dead.CompleteMessageAsync(letter);
    }

    public static async Task ReceiveAndDelete()
    {
        await using var client = Bus.Client();
        await client.CreateSender("delete").SendMessageAsync(new ServiceBusMessage("gone"));
        var options = new ServiceBusReceiverOptions { ReceiveMode = ServiceBusReceiveMode.ReceiveAndDelete };
        await using var receiver = client.CreateReceiver("delete", options);
        Check.Same("gone", (await Bus.One(receiver)).Body.ToString());
        Check.True(await receiver.PeekMessageAsync() == null, "it is still there");
    }

    public static async Task Peek()
    {
        await using var client = Bus.Client();
        var queue = await Bus.Queue();
        await client.CreateSender(queue).SendMessagesAsync(
            new[] { new ServiceBusMessage("a"), new ServiceBusMessage("b") });
        await using var receiver = client.CreateReceiver(queue);
        Check.SameList(new[] { "a", "b" }, (await receiver.PeekMessagesAsync(10)).Select(each => each.Body.ToString()));
    }

    public static async Task Renew()
    {
        await using var client = Bus.Client();
        await client.CreateSender("renew").SendMessageAsync(new ServiceBusMessage("kept"));
        await using var receiver = client.CreateReceiver("renew");
        var message = await Bus.One(receiver);
        await Task.Delay(3000);
        await receiver.RenewMessageLockAsync(message);
        await Task.Delay(3000);
        await receiver.CompleteMessageAsync(message);
    }

    public static async Task Sessions()
    {
        await using var client = Bus.Client();
        var sender = client.CreateSender("sessions");
        foreach (var body in new[] { "one", "two" })
        {
            await sender.SendMessageAsync(new ServiceBusMessage(body) { SessionId = "s1" });
        }
        await using (var receiver = await client.AcceptNextSessionAsync("sessions"))
        {
            Check.Same("s1", receiver.SessionId);
            foreach (var body in new[] { "one", "two" })
            {
                var message = await Bus.One(receiver);
                Check.Same(body, message.Body.ToString());
                await receiver.CompleteMessageAsync(message);
            }
            await receiver.SetSessionStateAsync(new BinaryData("state"));
            await receiver.RenewSessionLockAsync();
        }
        await using var again = await client.AcceptSessionAsync("sessions", "s1");
        Check.Same("state", (await again.GetSessionStateAsync()).ToString());
        await again.SetSessionStateAsync(null);
        Check.True(await again.GetSessionStateAsync() == null, "the state was not cleared");
    }

    public static async Task Schedule()
    {
        await using var client = Bus.Client();
        var sender = client.CreateSender("schedule");
        await sender.ScheduleMessageAsync(new ServiceBusMessage("soon"), DateTimeOffset.UtcNow.AddSeconds(2));
        var never = await sender.ScheduleMessageAsync(
            new ServiceBusMessage("never"), DateTimeOffset.UtcNow.AddHours(1));
        await sender.CancelScheduledMessageAsync(never);
        await using var receiver = client.CreateReceiver("schedule");
        var message = await Bus.One(receiver);
        Check.Same("soon", message.Body.ToString());
        await receiver.CompleteMessageAsync(message);
        Check.True(await receiver.PeekMessageAsync(0) == null, "the cancelled one is still there");
    }

    public static async Task Topics()
    {
        var administrator = Bus.Administrator();
        var topic = Bus.Name("topic");
        await administrator.CreateTopicAsync(topic);
        var rule = new CreateRuleOptions("rule", new SqlRuleFilter("color = 'red'"))
        {
            Action = new SqlRuleAction("SET shade = 'dark'"),
        };
        await administrator.CreateSubscriptionAsync(new CreateSubscriptionOptions(topic, "red"), rule);
        await using var client = Bus.Client();
        foreach (var color in new[] { "blue", "red" })
        {
            var message = new ServiceBusMessage(color);
            message.ApplicationProperties["color"] = color;
            await client.CreateSender(topic).SendMessageAsync(message);
        }
        await using var receiver = client.CreateReceiver(topic, "red");
        var got = await Bus.One(receiver);
        Check.Same("red", got.Body.ToString());
        Check.Same<object>("dark", got.ApplicationProperties["shade"]);
        await receiver.CompleteMessageAsync(got);
    }

    public static async Task WebSocket()
    {
        var connection = Bus.Setting("COMPAT_TLS");
        await using var client = new ServiceBusClient(connection, Bus.Options("websocket"));
        await client.CreateSender("websocket").SendMessageAsync(new ServiceBusMessage("through"));
        await using var receiver = client.CreateReceiver("websocket");
        await receiver.CompleteMessageAsync(await Bus.One(receiver));
    }

    public static async Task Large()
    {
        var body = new byte[5 * 1024 * 1024];
        body[body.Length - 1] = 7;
        await using var client = Bus.Client();
        await client.CreateSender("large").SendMessageAsync(new ServiceBusMessage(body));
        await using var receiver = client.CreateReceiver("large");
        var message = await Bus.One(receiver);
        Check.True(body.AsSpan().SequenceEqual(message.Body.ToMemory().Span), "another body came");
        await receiver.CompleteMessageAsync(message);
    }

    public static async Task BatchDelete()
    {
        var queue = await Bus.Queue();
        await using var client = Bus.Client();
        var sender = client.CreateSender(queue);
        await sender.SendMessagesAsync(Enumerable.Range(0, 50).Select(number => new ServiceBusMessage($"d{number}")));
        await using var receiver = client.CreateReceiver(queue);
        Check.Same(20, await Deleted(receiver, 20));
        Check.Same("d20", (await receiver.PeekMessageAsync()).Body.ToString());
        Check.Same(30, await Purged(receiver, null));
        Check.Same(0, await Deleted(receiver, 1));
        await sender.SendMessageAsync(new ServiceBusMessage("later"));
        Check.Same(0, await Purged(receiver, DateTimeOffset.UtcNow.AddHours(-1)));
    }

    /// <summary>In this version the client has batch delete, but not for everybody to call.</summary>
    private static Task<int> Deleted(ServiceBusReceiver receiver, int count) =>
        Hidden<int>(receiver, "DeleteMessagesAsync", count, null, CancellationToken.None);

    private static Task<int> Purged(ServiceBusReceiver receiver, DateTimeOffset? before) =>
        Hidden<int>(receiver, "PurgeMessagesAsync", before, CancellationToken.None);

    private static Task<T> Hidden<T>(ServiceBusReceiver receiver, string name, params object[] arguments)
    {
        var flags = BindingFlags.Instance | BindingFlags.Public | BindingFlags.NonPublic;
        return (Task<T>)typeof(ServiceBusReceiver).GetMethod(name, flags).Invoke(receiver, arguments);
    }

    /// <summary>Sends and receives while somebody kills the broker; ends when every message has come.</summary>
    public static async Task Kill()
    {
        var count = int.Parse(Bus.Setting("COMPAT_COUNT"));
        await using var client = Bus.Client();
        var sending = Task.Run(async () =>
        {
            var sender = client.CreateSender("kill");
            for (var number = 0; number < count; number++)
            {
                await Insistently(() => sender.SendMessageAsync(new ServiceBusMessage($"k{number}")));
            }
        });
        var found = new HashSet<string>();
        var receiver = client.CreateReceiver("kill");
        while (found.Count < count)
        {
            try
            {
                foreach (var message in await receiver.ReceiveMessagesAsync(20, Bus.Short))
                {
                    // Noted first: the broker may die between the completion and its answer.
                    found.Add(message.Body.ToString());
                    Program.Told(new Dictionary<string, object> { ["received"] = found.Count });
                    await receiver.CompleteMessageAsync(message);
                }
            }
            catch (Exception)
            {
                await Task.Delay(200);
            }
        }
        await sending;
    }

    public static async Task Insistently(Func<Task> action)
    {
        while (true)
        {
            try
            {
                await action();
                return;
            }
            catch (Exception)
            {
                await Task.Delay(200);
            }
        }
    }
}
