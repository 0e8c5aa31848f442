/* A thread of its own that lives from the first call on and sleeps between the calls; it takes half
 * of the rows. */
#include <math.h>
#include <pthread.h>
#include <stdint.h>

typedef struct {
  const float* x;
  float* y;
  int64_t rows, cols;
} Task;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static Task task;
static int has_task, started;

static void compute(Task of) {
  for (int64_t r = 0; r < of.rows; ++r, of.x += of.cols, of.y += of.cols) {
    float most = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < of.cols; ++i) most = fmaxf(most, of.x[i]);
    for (int64_t i = 0; i < of.cols; ++i) sum += of.y[i] = expf(of.x[i] - most);
    for (int64_t i = 0; i < of.cols; ++i) of.y[i] = (float)(of.y[i] / sum);
  }
}

static void* serve(void* none) {
  pthread_mutex_lock(&lock);
  for (;;) {
    while (!has_task) pthread_cond_wait(&changed, &lock);
    const Task mine = task;
    pthread_mutex_unlock(&lock);
    compute(mine);
    pthread_mutex_lock(&lock);
    has_task = 0;
    pthread_cond_broadcast(&changed);
  }
  return none;
}

void softmax(const float* x, float* y, int64_t rows, int64_t cols) {
  pthread_t thread;
  const int64_t half = rows / 2;
  if (!started) started = pthread_create(&thread, NULL, serve, NULL) == 0;
  if (!started) {
    compute((Task){x, y, rows, cols});
    return;
  }
  pthread_mutex_lock(&lock);
  task = (Task){x + half * cols, y + half * cols, rows - half, cols};
  has_task = 1;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  compute((Task){x, y, half, cols});
  pthread_mutex_lock(&lock);
  while (has_task) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
}
