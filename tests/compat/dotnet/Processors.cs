using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;
using Azure.Messaging.ServiceBus;

/// <summary>The client's pumps: each message to a handler, several at a time, locks renewed meanwhile.</summary>
public static class Processors
{
    public static async Task Messages()
    {
        var queue = await Bus.Queue(options => options.LockDuration = TimeSpan.FromSeconds(5));
        await using var client = Bus.Client();
        await client.CreateSender(queue).SendMessagesAsync(
            Enumerable.Range(0, 40).Select(number => new ServiceBusMessage($"p{number}")));
        var options = new ServiceBusProcessorOptions { MaxConcurrentCalls = 8, PrefetchCount = 10 };
        await using var processor = client.CreateProcessor(queue, options);
        var handled = new ConcurrentDictionary<string, int>();
        var errors = new ConcurrentQueue<string>();
        var running = 0;
        var most = 0;
        processor.ProcessMessageAsync += async arguments =>
        {
            var now = Interlocked.Increment(ref running);
            InterlockedMax(ref most, now);
            var body = arguments.Message.Body.ToString();
            var times = handled.AddOrUpdate(body, 1, (_, count) => count + 1);
            // One outlasts its lock, which the processor renews; one fails once, and is abandoned.
            await Task.Delay(body == "p0" ? 7000 : 20);
            Interlocked.Decrement(ref running);
            if (body == "p1" && times == 1)
            {
                throw new InvalidOperationException("on purpose");
            }
        };
        processor.ProcessErrorAsync += arguments =>
        {
            errors.Enqueue($"{arguments.ErrorSource}: {arguments.Exception.Message}");
            return Task.CompletedTask;
        };
        await processor.StartProcessingAsync();
        await Until(() => handled.Values.Sum() == 41 && Volatile.Read(ref running) == 0);
        await processor.StopProcessingAsync();
        Check.SameList(new[] { "ProcessMessageCallback: on purpose" }, errors);
        Check.Same(2, handled["p1"]);
        Check.True(most > 1, "one at a time");
        Check.True(await client.CreateReceiver(queue).PeekMessageAsync() == null, "a message is left");
    }

    public static async Task Sessions()
    {
        var queue = await Bus.Queue(options => options.RequiresSession = true);
        await using var client = Bus.Client();
        var sender = client.CreateSender(queue);
        for (var number = 0; number < 10; number++)
        {
            await sender.SendMessagesAsync(
                Enumerable.Range(0, 6).Select(session => new ServiceBusMessage($"{number}") { SessionId = $"s{session}" }));
        }
        var options = new ServiceBusSessionProcessorOptions
        {
            MaxConcurrentSessions = 3, SessionIdleTimeout = TimeSpan.FromSeconds(1),
        };
        await using var processor = client.CreateSessionProcessor(queue, options);
        var seen = new ConcurrentDictionary<string, List<string>>();
        var errors = new ConcurrentQueue<string>();
        var opened = 0;
        var closed = 0;
        processor.SessionInitializingAsync += async arguments =>
        {
            Interlocked.Increment(ref opened);
            await arguments.SetSessionStateAsync(new BinaryData("open"));
        };
        processor.SessionClosingAsync += arguments =>
        {
            Interlocked.Increment(ref closed);
            return Task.CompletedTask;
        };
        processor.ProcessMessageAsync += async arguments =>
        {
            Check.Same("open", (await arguments.GetSessionStateAsync()).ToString());
            seen.GetOrAdd(arguments.SessionId, _ => new List<string>()).Add(arguments.Message.Body.ToString());
        };
        processor.ProcessErrorAsync += arguments =>
        {
            errors.Enqueue($"{arguments.ErrorSource}: {arguments.Exception}");
            return Task.CompletedTask;
        };
        await processor.StartProcessingAsync();
        await Until(() => seen.Count == 6 && seen.Values.All(bodies => bodies.Count == 10));
        await processor.StopProcessingAsync();
        Check.SameList(new string[0], errors);
        foreach (var bodies in seen.Values)
        {
            Check.SameList(Enumerable.Range(0, 10).Select(number => $"{number}"), bodies);
        }
        Check.True(opened >= 6 && closed >= 3, $"{opened} sessions opened, {closed} closed");
    }

    public static async Task Until(Func<bool> fulfilled, int seconds = 40)
    {
        var end = DateTime.UtcNow.AddSeconds(seconds);
        while (!fulfilled())
        {
            Check.True(DateTime.UtcNow < end, "it never came to that");
            await Task.Delay(50);
        }
    }

    private static void InterlockedMax(ref int most, int value)
    {
        int before;
        while ((before = Volatile.Read(ref most)) < value)
        {
            Interlocked.CompareExchange(ref most, value, before);
        }
    }
}
