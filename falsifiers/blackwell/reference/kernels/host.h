// Runs the text of a CUDA kernel on the CPU, so that its arithmetic and its indices are tested without a GPU.
//
// Blocks run one after the other, the threads of a block as coroutines that change at __syncthreads. A barrier that not
// all threads of a block reach is undefined in CUDA; here the launch reports it. A thread begins by setcontext and
// changes by longjmp, because swapcontext calls the operating system each time, which takes many times as long.
#include <math.h>
#include <setjmp.h>
#include <stddef.h>
#include <ucontext.h>

#include <new>
#include <utility>

#define __global__
#define __device__ static
#define __shared__ static
#define __launch_bounds__(threads)

struct Index {
    unsigned x, y, z;
};

static Index threadIdx, blockIdx, blockDim, gridDim;

namespace host {

constexpr size_t STACK = 64 * 1024;

struct Coroutine {
    ucontext_t context;
    jmp_buf place;
    bool begun, ended;
};

static jmp_buf scheduler;
static Coroutine* running;
static void** arguments;
static void (*body)(void**);

__attribute__((noinline)) static void resume() {
    if (_setjmp(scheduler)) return;
    if (running->begun) _longjmp(running->place, 1);
    running->begun = true;
    setcontext(&running->context);
}

__attribute__((noinline)) static void wait() {
    if (!_setjmp(running->place)) _longjmp(scheduler, 1);
}

static void enter() {
    for (;;) {  // one block after the other
        body(arguments);
        running->ended = true;
        wait();
    }
}

// 0, or 1 if some threads of a block ended while others waited at a barrier.
static int run_block(Coroutine* threads, unsigned count) {
    for (unsigned at = 0; at < count; ++at) threads[at].ended = false;
    for (;;) {
        unsigned ended = 0;
        for (unsigned at = 0; at < count; ++at) {
            running = &threads[at];
            threadIdx = {at, 0, 0};
            resume();
            ended += running->ended;
        }
        if (ended) return ended != count;
    }
}

// The status of the first block that has one, or 2 if memory is short.
static int launch(const unsigned* grid, unsigned block) {
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block, 1, 1};
    Coroutine* threads = new (std::nothrow) Coroutine[block];
    char* stacks = new (std::nothrow) char[STACK * block];
    int status = threads && stacks ? 0 : 2;
    for (unsigned at = 0; !status && at < block; ++at) {
        getcontext(&threads[at].context);
        threads[at].context.uc_stack.ss_sp = stacks + STACK * at;
        threads[at].context.uc_stack.ss_size = STACK;
        threads[at].context.uc_link = nullptr;
        threads[at].begun = false;
        makecontext(&threads[at].context, enter, 0);
    }
    for (unsigned z = 0; z < grid[2]; ++z)
        for (unsigned y = 0; y < grid[1]; ++y)
            for (unsigned x = 0; !status && x < grid[0]; ++x) {
                blockIdx = {x, y, z};
                status = run_block(threads, block);
            }
    delete[] stacks;
    delete[] threads;
    return status;
}

template <class... Types, size_t... At>
static void call(void (*kernel)(Types...), void** values, std::index_sequence<At...>) {
    kernel(*static_cast<Types*>(values[At])...);
}

template <class... Types>
static void call(void (*kernel)(Types...), void** values) {
    call(kernel, values, std::index_sequence_for<Types...>{});
}

}  // namespace host

#define __syncthreads() host::wait()
