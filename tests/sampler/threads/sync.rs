//! The engine's tools for threads, scheduled by shuttle, and its clock, which sleeping advances.

pub(crate) use shuttle::sync::{Mutex, MutexGuard, PoisonError, atomic, mpsc};

pub(crate) mod time {
    use std::sync::atomic::{AtomicU64, Ordering};

    static NOW: AtomicU64 = AtomicU64::new(0);

    /// No two looks see the same time.
    pub(crate) fn monotonic_ns() -> u64 {
        pass(100)
    }

    pub(crate) fn pass(nanoseconds: u64) -> u64 {
        NOW.fetch_add(nanoseconds, Ordering::Relaxed) + nanoseconds
    }

    pub(crate) fn reset() {
        NOW.store(1_000_000, Ordering::Relaxed);
    }
}

pub(crate) mod thread {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    pub(crate) use shuttle::thread::{Scope, ScopedJoinHandle, Thread, current};

    /// The last thread of one of shuttle's scopes wakes the scope's owner, whatever that waits for.
    /// So one thread stays until the owner waits for the scope's end.
    pub(crate) fn scope<'env, T>(
        run: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
    ) -> T {
        shuttle::thread::scope(|scope| {
            let done = Arc::new(AtomicBool::new(false));
            let waits = Arc::clone(&done);
            scope.spawn(move || {
                while !waits.load(Ordering::Relaxed) {
                    shuttle::thread::yield_now();
                }
            });
            let ran = run(scope);
            done.store(true, Ordering::Relaxed);
            ran
        })
    }

    pub(crate) fn sleep(duration: Duration) {
        super::time::pass(duration.as_nanos() as u64);
        shuttle::thread::yield_now();
    }

    /// Shuttle's own waits for an `unpark`.
    pub(crate) fn park_timeout(duration: Duration) {
        sleep(duration);
    }

    pub(crate) struct Builder;

    impl Builder {
        pub(crate) fn new() -> Builder {
            Builder
        }

        pub(crate) fn name(self, _: String) -> Builder {
            self
        }

        pub(crate) fn spawn_scoped<'scope, T: Send + 'scope>(
            self,
            scope: &'scope Scope<'scope, '_>,
            run: impl FnOnce() -> T + Send + 'scope,
        ) -> std::io::Result<ScopedJoinHandle<'scope, T>> {
            Ok(scope.spawn(run))
        }
    }
}

/// The queue itself does not switch threads, so each use of it does.
pub(crate) mod queue {
    use std::ops::{Deref, DerefMut};

    #[derive(Debug)]
    pub(crate) struct End<T>(T);

    impl<T> Deref for End<T> {
        type Target = T;

        fn deref(&self) -> &T {
            shuttle::thread::yield_now();
            &self.0
        }
    }

    impl<T> DerefMut for End<T> {
        fn deref_mut(&mut self) -> &mut T {
            shuttle::thread::yield_now();
            &mut self.0
        }
    }

    pub(crate) type Producer<T> = End<rtrb::Producer<T>>;
    pub(crate) type Consumer<T> = End<rtrb::Consumer<T>>;

    pub(crate) struct RingBuffer;

    impl RingBuffer {
        #[expect(clippy::new_ret_no_self, reason = "as rtrb's")]
        pub(crate) fn new<T>(capacity: usize) -> (Producer<T>, Consumer<T>) {
            let (producer, consumer) = rtrb::RingBuffer::new(capacity);
            (End(producer), End(consumer))
        }
    }
}
