import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Candidates of Curator's LeaderSelector: {@code hosts path id candidates session-ms}.
 *
 * <p>Writes {@code lead MICROS CANDIDATE} when one of them leads and {@code left MICROS} when it was
 * told to leave, by a line {@code resign}. Times are microseconds since 1970.
 */
public final class Versus {
    /** What the leader of this process waits for, if there is one. */
    private static final AtomicReference<CountDownLatch> LEADS = new AtomicReference<>();

    public static void main(String[] args) throws Exception {
        String hosts = args[0];
        String path = args[1];
        int candidates = Integer.parseInt(args[3]);
        CuratorFramework client = CuratorFrameworkFactory.builder()
                .connectString(hosts)
                .sessionTimeoutMs(Integer.parseInt(args[4]))
                .connectionTimeoutMs(Integer.parseInt(args[4]))
                .retryPolicy(new ExponentialBackoffRetry(100, 3))
                .build();
        client.start();
        client.blockUntilConnected();
        List<LeaderSelector> selectors = new ArrayList<>();
        for (int number = 0; number < candidates; number++) {
            String id = args[2] + "-" + number;
            LeaderSelector selector = new LeaderSelector(client, path, new Leader(id));
            selector.setId(id);
            selector.autoRequeue();
            selector.start();
            selectors.add(selector);
        }
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        while ("resign".equals(orders.readLine())) {
            CountDownLatch leads = LEADS.get();
            if (leads != null) {
                long left = now();
                leads.countDown();
                say("left " + left);
            }
        }
        for (LeaderSelector selector : selectors) {
            selector.close();
        }
        client.close();
        System.exit(0);
    }

    private static final class Leader extends LeaderSelectorListenerAdapter {
        private final String id;

        Leader(String id) {
            this.id = id;
        }

        @Override
        public void takeLeadership(CuratorFramework client) throws InterruptedException {
            long leads = now();
            CountDownLatch leave = new CountDownLatch(1);
            LEADS.set(leave);
            say("lead " + leads + " " + id);
            leave.await();
            LEADS.compareAndSet(leave, null);
        }
    }

    private static long now() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
