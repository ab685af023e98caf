//! Runs the cases named on the command line and prints one line of JSON for each.

use std::collections::HashSet;
use std::env;
use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::transaction::{Controller, Transaction, TransactionDischarge, TransactionalRetirement};
use fe2o3_amqp::types::definitions::SenderSettleMode;
use fe2o3_amqp::types::messaging::{
    ApplicationProperties, Body, Data, Message, MessageAnnotations, Modified, Properties, Source,
};
use fe2o3_amqp::types::primitives::{SimpleValue, Symbol, Timestamp, Value};
use fe2o3_amqp::{Connection, Delivery, Receiver, Sendable, Sender, Session};
use fe2o3_amqp_ws::WebSocketStream;
use serde_amqp::described::Described;
use serde_amqp::descriptor::Descriptor;
use tokio::time::{sleep, timeout};

// The code of the service's session filter.
const SESSION_FILTER: u64 = 0x137_000_000C;

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;
type Got = Delivery<Body<Value>>;

// One thread: the client (0.14.1) notes a delivery as unsettled after it has handed the transfer to its session. On another
// thread the answer can come in between; it is then dropped, and the send waits for ever.
#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut failed = false;
    for name in env::args().skip(1) {
        let patience = Duration::from_secs(if name == "kill" { 600 } else { 30 });
        let outcome = match timeout(patience, run(&name)).await {
            Ok(outcome) => outcome,
            Err(_) => Err("it never ended".into()),
        };
        match outcome {
            Ok(()) => println!("{{\"case\": \"{name}\", \"ok\": true}}"),
            Err(error) => {
                failed = true;
                let text = format!("{error:?}").replace(['"', '\\'], "'").replace('\n', " ");
                println!("{{\"case\": \"{name}\", \"ok\": false, \"detail\": \"{text}\"}}");
            }
        }
    }
    std::process::exit(i32::from(failed));
}

async fn run(name: &str) -> Outcome {
    match name {
        "send" => send().await,
        "batch" => batch().await,
        "settle" => settle().await,
        "receive-and-delete" => receive_and_delete().await,
        "sessions" => sessions().await,
        "schedule" => schedule().await,
        "topics" => topics().await,
        "transactions" => transactions().await,
        "websocket" => websocket().await,
        "large" => large().await,
        "wrong-key" => wrong_key().await,
        "missing-entity" => missing_entity().await,
        "kill" => kill().await,
        _ => Err("no such case".into()),
    }
}

// --- cases ---

async fn send() -> Outcome {
    let mut bus = Bus::open().await?;
    let message = Message::builder()
        .properties(Properties::builder().message_id("m1".to_string()).build())
        .application_properties(ApplicationProperties::builder().insert("n", 5i32).build())
        .data(b"hello".to_vec())
        .build();
    bus.put("send", message).await?;
    let mut receiver = bus.receiver("send").await?;
    let got = one(&mut receiver).await?;
    same("hello", &text(&got))?;
    let properties = got.message().application_properties.clone().unwrap_or_default();
    same("Some(Int(5))", &format!("{:?}", properties.0.get("n")))?;
    receiver.accept(&got).await?;
    bus.close(receiver).await
}

/// The client has no batches: many sends in flight at once are what it has.
async fn batch() -> Outcome {
    let mut bus = Bus::open().await?;
    let mut sender = Sender::attach(&mut bus.session, "batch-out", "batch").await?;
    let mut waiting = Vec::new();
    for number in 0..100 {
        waiting.push(sender.send_batchable(data(&format!("b{number}"))).await?);
    }
    for sent in waiting {
        sent.await?.accepted_or_else(|state| format!("{state:?}"))?;
    }
    let mut receiver = bus.receiver("batch").await?;
    for number in 0..100 {
        let got = one(&mut receiver).await?;
        same(&format!("b{number}"), &text(&got))?;
        receiver.accept(&got).await?;
    }
    sender.close().await?;
    bus.close(receiver).await
}

async fn settle() -> Outcome {
    let mut bus = Bus::open().await?;
    let mut receiver = bus.receiver("settle").await?;
    bus.put("settle", data("abandoned")).await?;
    let got = one(&mut receiver).await?;
    receiver.modify(&got, modified(false)).await?;
    let again = one(&mut receiver).await?;
    let header = again.message().header.clone().unwrap_or_default();
    same("1", &header.delivery_count.to_string())?;
    receiver.accept(&again).await?;
    bus.put("settle", data("deferred")).await?;
    let aside = one(&mut receiver).await?;
    receiver.modify(&aside, modified(true)).await?;
    bus.put("settle", data("dead")).await?;
    let rejected = one(&mut receiver).await?;
    same("dead", &text(&rejected))?;
    receiver.reject(&rejected, None).await?;
    let mut dead = bus.receiver("settle/$DeadLetterQueue").await?;
    let letter = one(&mut dead).await?;
    same("dead", &text(&letter))?;
    dead.accept(&letter).await?;
    dead.close().await?;
    bus.close(receiver).await
}

async fn receive_and_delete() -> Outcome {
    let mut bus = Bus::open().await?;
    bus.put("delete", data("gone")).await?;
    let mut receiver = Receiver::builder()
        .name("deleting")
        .source("delete")
        .sender_settle_mode(SenderSettleMode::Settled)
        .attach(&mut bus.session)
        .await?;
    same("gone", &text(&one(&mut receiver).await?))?;
    bus.close(receiver).await
}

async fn sessions() -> Outcome {
    let mut bus = Bus::open().await?;
    let message = Message::builder()
        .properties(Properties::builder().group_id("s1".to_string()).build())
        .data(b"one".to_vec())
        .build();
    bus.put("sessions", message).await?;
    let wanted = Described { descriptor: Descriptor::Code(SESSION_FILTER), value: Value::String("s1".to_string()) };
    let source = Source::builder()
        .address("sessions")
        .add_to_filter(Symbol::from("com.microsoft:session-filter"), Some(wanted))
        .build();
    let mut receiver = Receiver::builder().name("session").source(source).attach(&mut bus.session).await?;
    let got = one(&mut receiver).await?;
    same("one", &text(&got))?;
    receiver.accept(&got).await?;
    bus.close(receiver).await
}

async fn schedule() -> Outcome {
    let mut bus = Bus::open().await?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64;
    let when = Value::Timestamp(Timestamp::from_milliseconds(now + 2000));
    let annotations = MessageAnnotations::builder().insert(Symbol::from("x-opt-scheduled-enqueue-time"), when).build();
    let message = Message::builder().message_annotations(annotations).data(b"soon".to_vec()).build();
    bus.put("schedule", message).await?;
    let mut receiver = bus.receiver("schedule").await?;
    let got = one(&mut receiver).await?;
    let came = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64;
    same("true", &(came >= now + 1900).to_string())?;
    receiver.accept(&got).await?;
    bus.close(receiver).await
}

/// The test made the topic and its subscription: an AMQP client cannot.
async fn topics() -> Outcome {
    let mut bus = Bus::open().await?;
    for color in ["blue", "red"] {
        let properties = ApplicationProperties::builder().insert("color", color).build();
        bus.put("topic", Message::builder().application_properties(properties).data(color.as_bytes().to_vec()).build()).await?;
    }
    let mut receiver = bus.receiver("topic/Subscriptions/red").await?;
    let got = one(&mut receiver).await?;
    same("red", &text(&got))?;
    let properties = got.message().application_properties.clone().unwrap_or_default();
    same("true", &(properties.0.get("shade") == Some(&SimpleValue::String("dark".to_string()))).to_string())?;
    receiver.accept(&got).await?;
    bus.close(receiver).await
}

async fn transactions() -> Outcome {
    let mut bus = Bus::open().await?;
    let mut sender = Sender::attach(&mut bus.session, "in-transaction", "transactions").await?;
    let mut receiver = bus.receiver("transactions").await?;
    let controller = Controller::attach(&mut bus.session, "controller").await?;
    for (body, commit) in [("lost", false), ("kept", true)] {
        let transaction = Transaction::declare(&controller, None).await?;
        transaction.post(&mut sender, data(body)).await?;
        if commit {
            transaction.commit().await?;
        } else {
            transaction.rollback().await?;
        }
    }
    let got = one(&mut receiver).await?;
    same("kept", &text(&got))?;
    let transaction = Transaction::declare(&controller, None).await?;
    transaction.accept(&mut receiver, &got).await?;
    transaction.commit().await?;
    controller.close().await?;
    sender.close().await?;
    bus.close(receiver).await
}

async fn websocket() -> Outcome {
    let port = env::var("COMPAT_PORT")?;
    let stream = WebSocketStream::connect(format!("wss://localhost:{port}/$servicebus/websocket")).await?;
    let mut connection = Connection::builder()
        .container_id("compat")
        .hostname("localhost")
        .sasl_profile(plain(&key()))
        .open_with_stream(stream)
        .await?;
    let session = Session::begin(&mut connection).await?;
    let mut bus = Bus { connection, session, count: 0 };
    bus.put("websocket", data("through")).await?;
    let mut receiver = bus.receiver("websocket").await?;
    let got = one(&mut receiver).await?;
    same("through", &text(&got))?;
    receiver.accept(&got).await?;
    bus.close(receiver).await
}

async fn large() -> Outcome {
    let mut bus = Bus::open().await?;
    let mut body = vec![0u8; 5 * 1024 * 1024];
    body.push(7);
    let size = body.len();
    bus.put("large", Message::builder().data(body).build()).await?;
    let mut receiver = bus.receiver("large").await?;
    let got = one(&mut receiver).await?;
    let found = bytes(&got);
    same(&format!("{size} Some(7)"), &format!("{} {:?}", found.len(), found.last()))?;
    receiver.accept(&got).await?;
    bus.close(receiver).await
}

async fn wrong_key() -> Outcome {
    match Bus::with_key("wrong").await {
        Ok(_) => Err("not refused".into()),
        Err(_) => Ok(()),
    }
}

async fn missing_entity() -> Outcome {
    let mut bus = Bus::open().await?;
    match bus.receiver("none").await {
        Ok(_) => return Err("not refused".into()),
        Err(error) => same("true", &format!("{error:?}").contains("could not be found").to_string())?,
    }
    // The session must have survived it.
    bus.put("send", data("after")).await?;
    let mut receiver = bus.receiver("send").await?;
    let got = one(&mut receiver).await?;
    receiver.accept(&got).await?;
    bus.close(receiver).await
}

/// Sends and receives while somebody kills the broker; ends when every message has come.
async fn kill() -> Outcome {
    let count: usize = env::var("COMPAT_COUNT")?.parse()?;
    let sending = tokio::spawn(async move {
        let mut number = 0;
        while number < count {
            // The client does not connect again by itself: a program does.
            let _ = timeout(Duration::from_secs(30), send_from(&mut number, count)).await;
            sleep(Duration::from_millis(200)).await;
        }
    });
    let mut found = HashSet::new();
    while found.len() < count {
        let _ = receive_until(&mut found, count).await;
        sleep(Duration::from_millis(200)).await;
    }
    sending.await?;
    Ok(())
}

async fn send_from(number: &mut usize, count: usize) -> Outcome {
    let mut bus = Bus::open().await?;
    let mut sender = Sender::attach(&mut bus.session, "killed-out", "kill").await?;
    while *number < count {
        let body = data(&format!("k{number}"));
        timeout(Duration::from_secs(5), sender.send(body)).await??.accepted_or_else(|state| format!("{state:?}"))?;
        *number += 1;
    }
    Ok(())
}

async fn receive_until(found: &mut HashSet<String>, count: usize) -> Outcome {
    let mut bus = timeout(Duration::from_secs(5), Bus::open()).await??;
    let mut receiver = bus.receiver("kill").await?;
    while found.len() < count {
        let got = timeout(Duration::from_secs(3), one(&mut receiver)).await??;
        // Noted first: the broker may die between the outcome and its answer.
        found.insert(text(&got));
        println!("{{\"received\": {}}}", found.len());
        timeout(Duration::from_secs(3), receiver.accept(&got)).await??;
    }
    Ok(())
}

// --- the client ---

struct Bus {
    connection: ConnectionHandle<()>,
    session: SessionHandle<()>,
    count: usize,
}

impl Bus {
    async fn open() -> Result<Bus, Box<dyn Error + Send + Sync>> {
        Bus::with_key(&key()).await
    }

    /// By SASL PLAIN: the policy's name and its key.
    async fn with_key(key: &str) -> Result<Bus, Box<dyn Error + Send + Sync>> {
        let address = format!("amqps://localhost:{}", env::var("COMPAT_PORT")?);
        let mut connection = Connection::builder()
            .container_id("compat")
            .sasl_profile(plain(key))
            .open(&address[..])
            .await?;
        let session = Session::begin(&mut connection).await?;
        Ok(Bus { connection, session, count: 0 })
    }

    async fn put(&mut self, path: &str, message: Message<Data>) -> Outcome {
        self.count += 1;
        let mut sender = Sender::attach(&mut self.session, format!("out-{}", self.count), path).await?;
        let outcome = sender.send(Sendable::from(message)).await?;
        outcome.accepted_or_else(|state| format!("{state:?}"))?;
        sender.close().await?;
        Ok(())
    }

    async fn receiver(&mut self, path: &str) -> Result<Receiver, Box<dyn Error + Send + Sync>> {
        self.count += 1;
        Ok(Receiver::attach(&mut self.session, format!("in-{}", self.count), path).await?)
    }

    async fn close(mut self, receiver: Receiver) -> Outcome {
        receiver.close().await?;
        self.session.end().await?;
        self.connection.close().await?;
        Ok(())
    }
}

fn plain(key: &str) -> SaslProfile {
    SaslProfile::Plain { username: part("SharedAccessKeyName"), password: key.to_string() }
}

fn key() -> String {
    part("SharedAccessKey")
}

fn part(name: &str) -> String {
    let connection = env::var("COMPAT_TLS").unwrap_or_default();
    let start = format!("{name}=");
    let found = connection.split(';').find_map(|part| part.strip_prefix(&start));
    found.unwrap_or_default().to_string()
}

fn data(body: &str) -> Message<Data> {
    Message::builder().data(body.as_bytes().to_vec()).build()
}

fn modified(aside: bool) -> Modified {
    Modified { delivery_failed: Some(true), undeliverable_here: Some(aside), message_annotations: None }
}

// --- checks ---

async fn one(receiver: &mut Receiver) -> Result<Got, Box<dyn Error + Send + Sync>> {
    Ok(timeout(Duration::from_secs(10), receiver.recv::<Body<Value>>()).await??)
}

fn bytes(got: &Got) -> Vec<u8> {
    match got.body() {
        Body::Data(parts) => parts.iter().flat_map(|Data(part): &Data| part.to_vec()).collect(),
        _ => Vec::new(),
    }
}

fn text(got: &Got) -> String {
    String::from_utf8_lossy(&bytes(got)).to_string()
}

fn same(wanted: &str, found: &str) -> Outcome {
    if wanted == found {
        return Ok(());
    }
    Err(format!("wanted {wanted}, found {found}").into())
}
