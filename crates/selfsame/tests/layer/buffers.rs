//! A limit of bytes in memory, which requests bring along: what counts, for how long, and who is refused by it.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use selfsame::{
    BufferAllowance, BufferExcess, BufferLimit, IdempotencyService, JsonPointer, Mode, Policy,
    RequestBody, Served,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tower::{Layer, Service, ServiceExt};

use crate::support::{Rig, Runs, Seen, answer, see};

const KIB: usize = 1024;

/// Room for some bytes, and the most that were counted at once.
struct Room {
    max: usize,
    excess: BufferExcess,
    counted: Mutex<(usize, usize)>,
}

impl Room {
    fn of(max: usize) -> Arc<Self> {
        let excess = BufferExcess::Client("no room: this is a test");
        Arc::new(Self { max, excess, counted: Mutex::default() })
    }

    fn held(&self) -> usize {
        self.counted.lock().0
    }

    /// The most that were held since the last call.
    fn peak(&self) -> usize {
        let (held, peak) = *self.counted.lock();
        self.counted.lock().1 = held;
        peak
    }
}

impl BufferLimit for Room {
    fn check(&self, bytes: usize) -> Result<(), BufferExcess> {
        match self.held() + bytes > self.max {
            true => Err(self.excess),
            false => Ok(()),
        }
    }

    fn reserve(&self, bytes: usize) -> Result<(), BufferExcess> {
        self.check(bytes).map(|()| self.add(bytes))
    }

    fn add(&self, bytes: usize) {
        let (held, peak) = &mut *self.counted.lock();
        *held += bytes;
        *peak = (*peak).max(*held);
    }

    fn release(&self, bytes: usize) {
        self.counted.lock().0 -= bytes;
    }

    fn share(&self, data: &[u8]) {
        self.add(data.len());
    }

    fn unshare(&self, data: &[u8]) {
        self.release(data.len());
    }
}

/// A body that comes in pieces.
struct Pieces(mpsc::UnboundedReceiver<Bytes>);

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

fn kib() -> Bytes {
    Bytes::from(vec![b' '; KIB])
}

/// Sends requests for which there is this room.
struct Client(Arc<Room>);

impl Client {
    /// A request whose body stays open, and its other end.
    fn post_open(&self, key: &str) -> (Request<Pieces>, mpsc::UnboundedSender<Bytes>) {
        let (sender, pieces) = mpsc::unbounded_channel();
        let request = Request::post("/charges").header("idempotency-key", key);
        let mut request = request.body(Pieces(pieces)).expect("a request");
        request.extensions_mut().insert(BufferAllowance::new(self.0.clone()));
        (request, sender)
    }

    /// A body of so many pieces of a kibibyte.
    fn post_kib(&self, key: &str, pieces: usize) -> Request<Pieces> {
        let (request, sender) = self.post_open(key);
        (0..pieces).for_each(|_| sender.send(kib()).expect("it is open"));
        request
    }
}

trait Inner:
    Service<
        Request<RequestBody<Pieces>>,
        Response = Response<Full<Bytes>>,
        Error = Infallible,
        Future: Send,
    > + Clone
    + Send
    + 'static
{
}

impl<S> Inner for S where
    S: Service<
            Request<RequestBody<Pieces>>,
            Response = Response<Full<Bytes>>,
            Error = Infallible,
            Future: Send,
        > + Clone
        + Send
        + 'static
{
}

/// A service that reads the body, takes three seconds, and answers with so many bytes.
fn charging(
    rig: &Rig,
    runs: &Runs,
    policy: Policy,
    answered: usize,
) -> IdempotencyService<impl Inner> {
    let runs = runs.clone();
    let service = tower::service_fn(move |request: Request<RequestBody<Pieces>>| {
        runs.begin();
        async move {
            let body = request.into_body().collect().await;
            drop(body.expect("a whole body").to_bytes());
            sleep(Duration::from_secs(3)).await;
            Ok::<_, Infallible>(answer(201, vec![b'x'; answered]))
        }
    });
    rig.idempotency.layer(policy).layer(service)
}

async fn send(service: &IdempotencyService<impl Inner>, request: Request<Pieces>) -> Seen {
    see(service.clone().oneshot(request).await.expect("no error")).await
}

#[tokio::test(start_paused = true)]
async fn a_body_that_has_no_room_is_refused_and_its_key_stays_free() {
    for (excess, status, slug) in [
        (BufferExcess::Client("of the client"), 429, "too-many-requests"),
        (BufferExcess::Whole("of all"), 503, "overloaded"),
    ] {
        let (rig, runs) = (Rig::new(), Runs::default());
        let client = Client(Arc::new(Room { max: 64 * KIB, excess, counted: Mutex::default() }));
        let service = charging(&rig, &runs, Policy::new().request_bytes_max(64 * KIB), 1);
        let (half, pieces) = client.post_open("half");
        let mut requests = JoinSet::new();
        requests.spawn({
            let service = service.clone();
            async move { send(&service, half).await }
        });
        (0..33).for_each(|_| pieces.send(kib()).expect("it is open"));
        sleep(Duration::from_secs(1)).await;
        // What is allocated counts: twice as much as is needed, whenever more is.
        assert_eq!(client.0.held(), 38 * KIB);

        let Seen { status: refused, served, body, .. } =
            send(&service, client.post_kib("k", 40)).await;
        assert_eq!((refused, served), (status, Served::TooManyBytes));
        assert!(body.contains(slug) && body.contains("\"retryable\":true"), "{body}");
        assert_eq!(send(&service, client.post_kib("small", 8)).await.status, 201);
        requests.shutdown().await;
        assert_eq!((client.0.held(), runs.count()), (0, 1));

        let retry = send(&service, client.post_kib("k", 40)).await;
        assert_eq!((retry.status, retry.served), (201, Served::Executed));
        assert_eq!((client.0.held(), runs.count()), (0, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn the_largest_body_needs_no_more_room_than_its_size() {
    let (rig, runs, client) = (Rig::new(), Runs::default(), Client(Room::of(100 * KIB)));
    let service = charging(&rig, &runs, Policy::new().request_bytes_max(100 * KIB), 1);
    assert_eq!(send(&service, client.post_kib("k", 100)).await.status, 201);
    assert_eq!((client.0.peak(), client.0.held()), (100 * KIB, 0));
    assert_eq!(send(&service, client.post_kib("larger", 101)).await.status, 413);
    assert_eq!(client.0.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_announced_and_cannot_fit_is_not_read() {
    let (rig, runs, client) = (Rig::new(), Runs::default(), Client(Room::of(50 * KIB)));
    let service = charging(&rig, &runs, Policy::new(), 1);
    let (mut request, _open) = client.post_open("k");
    request.headers_mut().insert("content-length", (50 * KIB + 1).into());
    assert_eq!(send(&service, request).await.status, 429);
    assert_eq!((client.0.peak(), runs.count()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_body_counts_while_its_request_waits_for_the_run_of_another() {
    let (rig, runs, client) = (Rig::new(), Runs::default(), Client(Room::of(100 * KIB)));
    let service = charging(&rig, &runs, Policy::new(), 1);
    let waiting = || {
        let mut request = client.post_kib("k", 20);
        request.headers_mut().insert("prefer", "wait=10".parse().expect("a value"));
        send(&service, request)
    };
    let (first, second, ()) = tokio::join!(waiting(), waiting(), async {
        sleep(Duration::from_secs(1)).await;
        // The first one's is with the service, which has read it.
        let held = client.0.held();
        assert!((20 * KIB..=40 * KIB).contains(&held), "{held}");
    });
    assert_eq!((first.status, second.served), (201, Served::Waited));
    assert_eq!((client.0.held(), runs.count()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn responses_count_until_they_are_taken_and_are_never_refused() {
    const LARGE: usize = 200 * KIB;
    let (rig, runs, client) = (Rig::new(), Runs::default(), Client(Room::of(100 * KIB)));
    let service = charging(&rig, &runs, Policy::new(), LARGE);
    let ask = |key: &str| service.clone().oneshot(client.post_kib(key, 1));
    let first = ask("k").await.expect("no error");
    assert_eq!((first.status().as_u16(), client.0.held()), (201, LARGE));
    // Whoever does not take them runs nothing more, and gets no further ones.
    for key in ["k", "new"] {
        let refused = send(&service, client.post_kib(key, 0)).await;
        assert_eq!((refused.status, refused.served), (429, Served::TooManyBytes));
    }
    let first = see(first).await;
    assert_eq!((first.body.len(), client.0.held()), (LARGE, 0));
    let replay = ask("k").await.expect("no error");
    assert_eq!((replay.extensions().get(), client.0.held()), (Some(&Served::Replayed), LARGE));
    assert_eq!(see(replay).await.body, first.body);
    assert_eq!((client.0.held(), runs.count()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_response_too_large_to_keep_counts_as_well() {
    let (rig, runs, client) = (Rig::new(), Runs::default(), Client(Room::of(100 * KIB)));
    let service = charging(&rig, &runs, Policy::new().answer_bytes_max(50 * KIB), 200 * KIB);
    let passed = service.clone().oneshot(client.post_kib("k", 1)).await.expect("no error");
    assert_eq!(see(passed).await.body.len(), 200 * KIB);
    assert_eq!(client.0.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn nothing_stays_counted_for_a_client_that_leaves_or_a_service_that_panics() {
    let (rig, client) = (Rig::new(), Client(Room::of(1000 * KIB)));
    let service = tower::service_fn(|request: Request<RequestBody<Pieces>>| async move {
        let path = request.uri().path().to_owned();
        sleep(Duration::from_secs(3)).await;
        assert!(path != "/panics", "on purpose");
        Ok::<_, Infallible>(answer(201, vec![b'x'; 100 * KIB]))
    });
    let service = rig.idempotency.layer(Policy::new()).layer(service);
    let mut panics = client.post_kib("panics", 40);
    *panics.uri_mut() = "/panics".parse().expect("a path");
    for request in [client.post_kib("leaves", 40), panics] {
        let asking = service.clone().oneshot(request);
        assert!(timeout(Duration::from_secs(1), asking).await.is_err(), "it left");
        assert!(client.0.peak() >= 40 * KIB);
        rig.idempotency.drained().await;
        assert_eq!(client.0.held(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_looked_into_for_its_key_counts() {
    let (rig, runs, client) = (Rig::new(), Runs::default(), Client(Room::of(64 * KIB)));
    let pointer = JsonPointer::parse("/key").expect("a pointer");
    let service = charging(&rig, &runs, Policy::new().key_pointer(Some(pointer)), 1);
    let with_key = |pieces: usize| {
        let (mut request, sender) = client.post_open("");
        sender.send(Bytes::from_static(br#"{"key":"k"}"#)).expect("it is open");
        (0..pieces).for_each(|_| sender.send(kib()).expect("it is open"));
        request.headers_mut().remove("idempotency-key");
        request
    };
    assert_eq!(send(&service, with_key(64)).await.status, 429);
    assert_eq!(send(&service, with_key(30)).await.status, 201);
    assert_eq!((client.0.held(), runs.count()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_route_that_observes_refuses_nothing() {
    let (rig, runs, client) = (Rig::new(), Runs::default(), Client(Room::of(0)));
    let service = charging(&rig, &runs, Policy::new().mode(Mode::Observe), 100 * KIB);
    assert_eq!(send(&service, client.post_kib("k", 40)).await.served, Served::Passed);
    rig.idempotency.drained().await;
    assert_eq!(client.0.peak(), 0);
}
