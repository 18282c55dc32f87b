/* The clock of a server of a test: as far ahead as the file KEYLANE_CLOCK says, in seconds.
 *
 * `libfaketime` needs memory before it is ready, and the allocator of Redis needs the time for that. This
 * calls the system alone, and leaves the monotonic clock as it is. */

#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long ahead(void) {
  const char *path = getenv("KEYLANE_CLOCK");
  char text[32];
  long file = path ? syscall(SYS_openat, AT_FDCWD, path, O_RDONLY) : -1;
  if (file < 0) return 0;
  long length = syscall(SYS_read, file, text, sizeof text - 1);
  syscall(SYS_close, file);
  if (length < 0) return 0;
  text[length] = 0;
  return strtol(text, 0, 10);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int failed = syscall(SYS_clock_gettime, clock, now);
  if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += ahead();
  return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
  struct timespec real;
  (void)zone;
  int failed = clock_gettime(CLOCK_REALTIME, &real);
  if (failed) return failed;
  now->tv_sec = real.tv_sec;
  now->tv_usec = real.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *out) {
  struct timespec real;
  if (clock_gettime(CLOCK_REALTIME, &real)) return -1;
  if (out) *out = real.tv_sec;
  return real.tv_sec;
}
