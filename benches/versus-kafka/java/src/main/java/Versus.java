import static io.confluent.parallelconsumer.ParallelConsumerOptions.CommitMode.PERIODIC_CONSUMER_ASYNCHRONOUS;
import static io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder.KEY;

import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import io.confluent.parallelconsumer.reactor.ReactorProcessor;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import reactor.core.publisher.Mono;

/**
 * Runs Parallel Consumer until its task is done, prints the report, and ends the process. The task is
 * in the arguments, as {@code name=value}; see src/task.rs.
 */
final class Versus {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> task = new HashMap<>();
        for (String argument : arguments) {
            int sign = argument.indexOf('=');
            if (sign > 0) {
                task.put(argument.substring(0, sign), argument.substring(sign + 1));
            }
        }
        Work work = new Work(task);
        ParallelConsumerOptions<byte[], byte[]> options =
                ParallelConsumerOptions.<byte[], byte[]>builder()
                        .ordering(KEY)
                        .maxConcurrency(Integer.parseInt(task.get("concurrency")))
                        .commitMode(PERIODIC_CONSUMER_ASYNCHRONOUS)
                        .consumer(new KafkaConsumer<>(client(task)))
                        .build();
        List<String> topics = List.of(task.get("topic"));
        switch (arguments[0]) {
            case "parallel" -> {
                var processor = ParallelStreamProcessor.createEosStreamProcessor(options);
                processor.subscribe(topics);
                processor.poll(context -> work.handle(context.value()));
            }
            case "parallel-reactor" -> {
                var processor = new ReactorProcessor<>(options);
                processor.subscribe(topics);
                processor.react(context -> react(work, context.value()));
            }
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        work.awaitEnd();
        System.out.println(work.report());
        System.out.flush();
        // How fast it would stop is not measured.
        Runtime.getRuntime().halt(0);
    }

    /** With a value at its end: without one Parallel Consumer would not know that it has ended. */
    private static Mono<Boolean> react(Work work, byte[] value) {
        work.begin(value);
        long micros = work.pauseMicros(value);
        Mono<Void> pause = micros > 0 ? Mono.delay(Duration.ofNanos(micros * 1_000)).then() : Mono.empty();
        return pause.then(Mono.fromCallable(() -> {
            work.end(value);
            return true;
        }));
    }

    private static Properties client(Map<String, String> task) {
        Properties client = new Properties();
        client.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, task.get("bootstrap"));
        client.put(ConsumerConfig.GROUP_ID_CONFIG, task.get("group"));
        client.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        client.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, "false");
        client.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        client.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        if (!task.get("progress").isEmpty()) {
            // The process that follows a killed one has its partitions soon.
            client.put(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG, "6000");
        }
        return client;
    }
}
