import java.util.*;
import java.util.concurrent.*;
import java.util.function.Supplier;

import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;

/** A clock that stands still until it is moved, and a scheduler that runs on it in the calling thread. */
final class Clock implements Time, Scheduler {
    volatile long now;
    private final List<Task> tasks = new ArrayList<>();

    Clock(long now) { this.now = now; }

    @Override public long milliseconds() { return now; }
    @Override public long nanoseconds() { return now * 1_000_000L; }
    @Override public void sleep(long ms) { now += ms; }
    @Override public void startup() { }
    @Override public void shutdown() { }
    @Override public void resizeThreadPool(int size) { }

    @Override public void waitObject(Object object, Supplier<Boolean> condition, long deadline) {
        throw new UnsupportedOperationException();
    }

    /** What repeats is left out: nothing happens unasked. */
    @Override public synchronized ScheduledFuture<?> schedule(String name, Runnable body, long delay, long period) {
        Task task = new Task(body, now + delay);
        if (period < 0)
            tasks.add(task);
        return task;
    }

    /** Runs all tasks that are due by now, in the order in which they are due. */
    void run() {
        for (Task next = next(); next != null; next = next())
            if (!next.isCancelled())
                next.body.run();
    }

    private synchronized Task next() {
        Task next = tasks.stream().filter(t -> t.due <= now).min(Comparator.comparingLong(t -> t.due)).orElse(null);
        tasks.remove(next);
        return next;
    }

    private static final class Task extends CompletableFuture<Object> implements ScheduledFuture<Object> {
        final Runnable body;
        final long due;

        Task(Runnable body, long due) {
            this.body = body;
            this.due = due;
        }

        @Override public long getDelay(TimeUnit unit) { return 0; }
        @Override public int compareTo(Delayed other) { return 0; }
    }
}
