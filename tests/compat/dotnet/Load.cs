using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;
using Azure.Messaging.ServiceBus;

/// <summary>Processors under load while somebody kills the broker: what was lost, and what had two owners.</summary>
public static class Load
{
    private const int Senders = 8;
    private const int Batch = 20;

    public static Task Messages() => Run(false);

    public static Task Sessions() => Run(true);

    private static async Task Run(bool sessions)
    {
        var count = int.Parse(Bus.Setting("COMPAT_COUNT"));
        var queue = await Bus.Queue(options => options.RequiresSession = sessions);
        await using var client = Bus.Client();
        var owners = new Owners(count);
        await using var first = sessions ? null : Pump(client, queue, owners);
        await using var second = sessions ? null : Pump(client, queue, owners);
        await using var third = sessions ? SessionPump(client, queue, owners) : null;
        await using var fourth = sessions ? SessionPump(client, queue, owners) : null;
        foreach (var processor in new[] { first, second }.Where(each => each != null))
        {
            await processor.StartProcessingAsync();
        }
        foreach (var processor in new[] { third, fourth }.Where(each => each != null))
        {
            await processor.StartProcessingAsync();
        }
        await Task.WhenAll(Enumerable.Range(0, Senders).Select(number => Send(client, queue, number, count, sessions)));
        await Processors.Until(() => owners.Left == 0, 300);
        await using var receiver = client.CreateReceiver(queue);
        await Processors.Until(() => receiver.PeekMessageAsync(0).GetAwaiter().GetResult() == null, 120);
        Program.Told(new Dictionary<string, object>
        {
            ["handled"] = owners.Handled, ["completed"] = owners.Completed, ["lost"] = owners.Left,
            ["doubled"] = owners.Doubled, ["overlaps"] = owners.Overlaps, ["disorders"] = owners.Disorders,
            ["errors"] = owners.Errors,
        });
        Check.Same(0, owners.Doubled, "messages completed twice");
        Check.Same(0, owners.Overlaps, "handlers with one message or one session at once");
        Check.Same(0, owners.Disorders, "sessions out of order");
    }

    private static async Task Send(ServiceBusClient client, string queue, int number, int count, bool sessions)
    {
        var sender = client.CreateSender(queue);
        for (var start = number * Batch; start < count; start += Senders * Batch)
        {
            // A batch that fails is sent again under the same names, as an application would; what comes twice
            // is then two messages, told apart by their sequence numbers.
            var bodies = Enumerable.Range(start, Math.Min(Batch, count - start)).ToList();
            await global::Messages.Insistently(() => sender.SendMessagesAsync(bodies.Select(body =>
                new ServiceBusMessage($"{body}") { SessionId = sessions ? $"s{number * 5 + body % 5}" : null })));
        }
    }

    private static ServiceBusProcessor Pump(ServiceBusClient client, string queue, Owners owners)
    {
        var options = new ServiceBusProcessorOptions
        {
            MaxConcurrentCalls = 16, PrefetchCount = 50, AutoCompleteMessages = false,
        };
        var processor = client.CreateProcessor(queue, options);
        processor.ProcessMessageAsync += async arguments =>
        {
            using (owners.Own($"m{arguments.Message.SequenceNumber}", arguments.Message))
            {
                await arguments.CompleteMessageAsync(arguments.Message);
                owners.Complete(arguments.Message.SequenceNumber);
            }
        };
        processor.ProcessErrorAsync += owners.Failed;
        return processor;
    }

    private static ServiceBusSessionProcessor SessionPump(ServiceBusClient client, string queue, Owners owners)
    {
        var options = new ServiceBusSessionProcessorOptions
        {
            MaxConcurrentSessions = 8, PrefetchCount = 20, AutoCompleteMessages = false,
            SessionIdleTimeout = TimeSpan.FromMilliseconds(500),
        };
        var processor = client.CreateSessionProcessor(queue, options);
        processor.ProcessMessageAsync += async arguments =>
        {
            using (owners.Own($"s{arguments.SessionId}", arguments.Message))
            {
                await arguments.CompleteMessageAsync(arguments.Message);
                owners.Complete(arguments.Message.SequenceNumber, arguments.SessionId);
            }
        };
        processor.ProcessErrorAsync += owners.Failed;
        return processor;
    }

    /// <summary>Who handles what, and what has been completed.</summary>
    private sealed class Owners
    {
        private readonly ConcurrentDictionary<string, int> bodies = new ConcurrentDictionary<string, int>();
        private readonly ConcurrentDictionary<string, int> held = new ConcurrentDictionary<string, int>();
        private readonly ConcurrentDictionary<long, int> completed = new ConcurrentDictionary<long, int>();
        private readonly ConcurrentDictionary<string, long> last = new ConcurrentDictionary<string, long>();
        private readonly int count;
        private int handled;
        private int doubled;
        private int overlaps;
        private int disorders;
        private int errors;

        public Owners(int count)
        {
            this.count = count;
        }

        public int Left => this.count - this.bodies.Count;

        public int Handled => this.handled;

        public int Completed => this.completed.Count;

        public int Doubled => this.doubled;

        public int Overlaps => this.overlaps;

        public int Disorders => this.disorders;

        public int Errors => this.errors;

        public IDisposable Own(string owned, ServiceBusReceivedMessage message)
        {
            Interlocked.Increment(ref this.handled);
            if (this.held.AddOrUpdate(owned, 1, (_, many) => many + 1) > 1)
            {
                Interlocked.Increment(ref this.overlaps);
            }
            if (this.bodies.TryAdd(message.Body.ToString(), 1) && this.bodies.Count % 100 == 0)
            {
                Program.Told(new Dictionary<string, object> { ["received"] = this.bodies.Count });
            }
            return new Release(() => this.held.AddOrUpdate(owned, 0, (_, many) => many - 1));
        }

        public void Complete(long number, string session = null)
        {
            if (!this.completed.TryAdd(number, 1))
            {
                Interlocked.Increment(ref this.doubled);
            }
            if (session != null && this.last.TryGetValue(session, out var before) && before > number)
            {
                Interlocked.Increment(ref this.disorders);
            }
            if (session != null)
            {
                this.last[session] = number;
            }
        }

        public Task Failed(ProcessErrorEventArgs arguments)
        {
            Interlocked.Increment(ref this.errors);
            return Task.CompletedTask;
        }
    }

    private sealed class Release : IDisposable
    {
        private readonly Action end;

        public Release(Action end)
        {
            this.end = end;
        }

        public void Dispose() => this.end();
    }
}
