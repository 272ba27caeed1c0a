/* Counts every launch up to a number, and later those of 5 ms in each 100. CUPTI calls back at the start and at the end of
 * each launch, which costs a microsecond; so a run of many launches is slowed down by a twentieth of that.
 *
 *   HARNESS_RECORDER_LAUNCHES  launches that are all counted (default 20000)
 *
 * The thread belongs to the recorder. It ends before CUPTI does, as the handler of exit joins it. */
#pragma once
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

enum { ALL = 1, SAMPLED = 2 }; /* 0: none */
enum { COUNTED_NS = 5 * 1000 * 1000, LEFT_OUT_NS = 95 * 1000 * 1000 };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t ends;
    pthread_t thread;
    int started, ended, mode;
    uint64_t all;
    void (*count_launches)(int);
} sampling = {.lock = PTHREAD_MUTEX_INITIALIZER, .all = 20000, .mode = ALL};

static void wait_for(long nanoseconds) { /* with the lock; shorter if the process ends */
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += nanoseconds;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    while (!sampling.ended && pthread_cond_timedwait(&sampling.ends, &sampling.lock, &until) == 0) {}
}

static void *sample(void *unused) {
    (void)unused;
    pthread_mutex_lock(&sampling.lock);
    while (!sampling.ended) {
        wait_for(LEFT_OUT_NS);
        if (sampling.mode == SAMPLED && !sampling.ended) sampling.count_launches(1);
        wait_for(COUNTED_NS);
        if (sampling.mode == SAMPLED) sampling.count_launches(0);
    }
    pthread_mutex_unlock(&sampling.lock);
    return NULL;
}

/* From now on count all launches, some, or none. */
static void count(int mode) {
    pthread_mutex_lock(&sampling.lock);
    sampling.mode = mode;
    if (mode == SAMPLED && !sampling.started) {
        sigset_t every, before; /* no signal of the program's ends up here */
        sigfillset(&every);
        pthread_sigmask(SIG_SETMASK, &every, &before);
        sampling.started = pthread_create(&sampling.thread, NULL, sample, NULL) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (!sampling.started) sampling.mode = ALL;
    }
    sampling.count_launches(sampling.mode == ALL);
    pthread_mutex_unlock(&sampling.lock);
}

static void end_sampling(void) {
    pthread_mutex_lock(&sampling.lock);
    sampling.ended = 1;
    pthread_cond_signal(&sampling.ends);
    pthread_mutex_unlock(&sampling.lock);
    if (sampling.started) pthread_join(sampling.thread, NULL);
}
