import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.StringJoiner;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.atomic.AtomicLong;

/** The handler, and what it sees of the order: the same as src/work.rs and src/handler.rs. */
final class Work {
    /** The next record of this key may be any up to the one where the process before has ended. */
    private static final int UNKNOWN = -1;

    /** How long nothing may be handled before a process that follows a killed one has done all. */
    private static final long QUIET_MILLIS = 2_000;

    private static final int HALTED = 1;

    private final String handler;
    private final int micros;
    private final int firstCounted;
    private final long expected;
    private final long startedMillis;
    private final AtomicIntegerArray next;
    private final AtomicIntegerArray busy;
    /** How many records of each key the process before has handled. */
    private final int[] before;
    private final FileChannel progress;

    private final Object once = new Object();
    private volatile boolean hasBegun;
    private long first;
    private double startup;
    private double cpuStartup;
    private volatile long last;
    private double cpu;

    private final AtomicLong ended = new AtomicLong();
    private final AtomicLong breaks = new AtomicLong();
    private final AtomicLong again = new AtomicLong();
    private final AtomicInteger tenths = new AtomicInteger();
    private final long[] tenthAt = new long[20];
    private final CountDownLatch done = new CountDownLatch(1);

    Work(Map<String, String> task) throws IOException {
        String[] parts = task.get("handler").split(":");
        handler = parts[0];
        micros = Integer.parseInt(parts[1]);
        firstCounted = Integer.parseInt(task.get("first_counted"));
        expected = Long.parseLong(task.get("expected"));
        startedMillis = Long.parseLong(task.get("started_ms"));
        int keys = Integer.parseInt(task.get("keys"));
        boolean follows = Boolean.parseBoolean(task.get("follows"));
        int[] start = new int[keys];
        if (follows) {
            java.util.Arrays.fill(start, UNKNOWN);
        }
        next = new AtomicIntegerArray(start);
        busy = new AtomicIntegerArray(keys);
        String file = task.get("progress");
        progress =
                file.isEmpty()
                        ? null
                        : FileChannel.open(Path.of(file), StandardOpenOption.READ, StandardOpenOption.WRITE);
        before = follows ? readProgress(keys) : null;
    }

    private int[] readProgress(int keys) throws IOException {
        ByteBuffer bytes = ByteBuffer.allocate(keys * 4).order(ByteOrder.LITTLE_ENDIAN);
        while (bytes.hasRemaining()) {
            if (progress.read(bytes, bytes.position()) < 0) {
                throw new IOException("the file of the progress is too short");
            }
        }
        int[] numbers = new int[keys];
        bytes.flip();
        bytes.asIntBuffer().get(numbers);
        return numbers;
    }

    void handle(byte[] value) {
        begin(value);
        long pause = pauseMicros(value);
        if (pause > 0) {
            try {
                Thread.sleep(pause / 1_000, (int) (pause % 1_000) * 1_000);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
                throw new IllegalStateException(interrupted);
            }
        }
        int key = key(value);
        if (handler.equals("failing") && key <= HALTED) {
            // The same record is the next one again.
            next.set(key, number(value));
            busy.set(key, 0);
            throw new IllegalStateException("key " + key + " fails as asked");
        }
        end(value);
    }

    void begin(byte[] value) {
        if (!hasBegun) {
            noteFirst();
        }
        int key = key(value);
        int number = number(value);
        boolean overlaps = busy.getAndSet(key, 1) == 1;
        int expectedNumber = next.getAndSet(key, number + 1);
        int handledBefore = before == null ? 0 : before[key];
        boolean fits = expectedNumber == UNKNOWN ? number <= handledBefore : number == expectedNumber;
        if (overlaps || !fits) {
            breaks.incrementAndGet();
        }
        if (number < handledBefore) {
            again.incrementAndGet();
        }
    }

    void end(byte[] value) {
        int key = key(value);
        if (progress != null) {
            writeProgress(key, number(value) + 1);
        }
        busy.set(key, 0);
        if (key < firstCounted) {
            return;
        }
        long now = ended.incrementAndGet();
        if (now % Math.max(expected / 10, 1) == 0) {
            int place = tenths.getAndIncrement();
            if (place < tenthAt.length) {
                tenthAt[place] = System.nanoTime();
            }
        }
        if (now == expected) {
            noteLast();
            done.countDown();
        }
    }

    private void writeProgress(int key, int number) {
        ByteBuffer bytes = ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(number).flip();
        try {
            progress.write(bytes, key * 4L);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    long pauseMicros(byte[] value) {
        return switch (handler) {
            case "sleep", "failing" -> micros;
            case "random" -> random(key(value), number(value)) % (micros + 1L);
            case "hot" -> key(value) == 0 ? micros : 0;
            default -> 0;
        };
    }

    private static long random(int key, int number) {
        long z = ((long) key << 32 | number) + 0x9e3779b97f4a7c15L;
        z = (z ^ (z >>> 30)) * 0xbf58476d1ce4e5b9L;
        z = (z ^ (z >>> 27)) * 0x94d049bb133111ebL;
        return (z ^ (z >>> 31)) >>> 1;
    }

    private static int key(byte[] value) {
        return ByteBuffer.wrap(value).getInt(0);
    }

    private static int number(byte[] value) {
        return ByteBuffer.wrap(value).getInt(4);
    }

    private void noteFirst() {
        synchronized (once) {
            if (!hasBegun) {
                startup = (System.currentTimeMillis() - startedMillis) / 1e3;
                cpuStartup = cpuSeconds();
                first = System.nanoTime();
                hasBegun = true;
            }
        }
    }

    private void noteLast() {
        last = System.nanoTime();
        cpu = cpuSeconds();
    }

    void awaitEnd() throws InterruptedException {
        if (before == null) {
            done.await();
            return;
        }
        long seen = 0;
        while (true) {
            Thread.sleep(QUIET_MILLIS);
            long now = ended.get();
            if (now > 0 && now == seen) {
                if (last == 0) {
                    noteLast();
                }
                return;
            }
            seen = now;
        }
    }

    String report() {
        StringJoiner at = new StringJoiner(",", "[", "]");
        for (int i = 0; i < Math.min(tenths.get(), tenthAt.length); i++) {
            at.add(seconds(tenthAt[i] - first));
        }
        return "{\"seconds\":" + seconds(last - first)
                + ",\"startup_seconds\":" + decimal(startup)
                + ",\"handled\":" + Math.min(ended.get(), expected)
                + ",\"breaks\":" + breaks.get()
                + ",\"again\":" + again.get()
                + ",\"cpu_seconds\":" + decimal(cpu)
                + ",\"cpu_startup_seconds\":" + decimal(cpuStartup)
                + ",\"peak_kib\":" + peakKib()
                + ",\"tenths\":" + at + "}";
    }

    private static String seconds(long nanos) {
        return decimal(nanos / 1e9);
    }

    private static String decimal(double value) {
        return String.format(Locale.ROOT, "%.6f", value);
    }

    /** As the kernel says it, like the contenders in Rust. */
    private static double cpuSeconds() {
        try {
            String stat = Files.readString(Path.of("/proc/self/stat"));
            String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
            return (Long.parseLong(fields[11]) + Long.parseLong(fields[12])) / 100.0;
        } catch (IOException error) {
            return 0;
        }
    }

    private static long peakKib() {
        try {
            List<String> lines = Files.readAllLines(Path.of("/proc/self/status"));
            for (String line : lines) {
                if (line.startsWith("VmHWM:")) {
                    return Long.parseLong(line.replaceAll("[^0-9]", ""));
                }
            }
        } catch (IOException error) {
            return 0;
        }
        return 0;
    }
}
