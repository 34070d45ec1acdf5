/* One launch: the arguments of a call, laid out as the driver takes them, and the call of the driver.

   What stands where is learned in Python (direct.py) and given here once for each binary. A launch of any size (`Direct`)
   then takes addresses, shapes and strides of its tensors, puts tensor maps together, sees that arguments do not overlap
   that must not, and launches; one that is made again (`Again`) takes addresses alone. The block of arguments is on the
   stack: nothing is kept from one launch to the next, and threads do not meet.
*/
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MAX_BLOCK 8192 /* bytes of arguments, each descriptor at an alignment of its own, and of how the kernel is launched */
#define MAX_PARAMETERS 256
#define MAX_RANK 5
#define MAP_WORDS 16
#define ALIGNMENT 128
#define INVALID_CONTEXT 201

typedef int (*Call)(void *config, void *function, void **parameters, void **extra);

typedef struct {
  uint8_t source; /* sizes less one, then strides in units */
  uint8_t low, word, shift;
  uint64_t mask;
} Field;

typedef struct {
  char kind;     /* 'p': an address; 't': a tensor map, strides and sizes; else how `struct` writes a number */
  char reaches;  /* are the bytes asked for that it reaches? */
  int argument;  /* which of the launch's */
  uint32_t offset;
  uint8_t rank, size; /* of a descriptor, its elements' bytes */
  int fields;
  uint64_t constant[MAP_WORDS];
  Field *field;
} Part;

typedef struct {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  Call call;
  void *function;
  PyObject *tensor, *kept; /* torch.Tensor; what has the memory that a block points to */
  uint32_t size, early; /* of the block; the byte in it that says whether blocks start early */
  uint8_t contents[MAX_BLOCK];
  int parameters, parts, arguments, pairs;
  uint32_t offset[MAX_PARAMETERS];
  Part *part;
  int *pair; /* two parts each */
} Direct;

static PyObject *data_ptr_name, *nbytes_name, *is_contiguous_name;

/* 1: found; 0: it is out of the ordinary; -1: an error is set. */
static int whole(PyObject *number, int64_t *found) {
  if (!PyLong_CheckExact(number)) return 0;
  int overflow;
  *found = PyLong_AsLongLongAndOverflow(number, &overflow);
  return overflow ? 0 : *found == -1 && PyErr_Occurred() ? -1 : 1;
}

static int asked(PyObject *object, PyObject *name, int called, uint64_t *found) {
  PyObject *made = called ? PyObject_CallMethodNoArgs(object, name) : PyObject_GetAttr(object, name);
  if (made == NULL) return -1;
  *found = PyLong_AsUnsignedLongLong(made);
  Py_DECREF(made);
  return *found == (uint64_t)-1 && PyErr_Occurred() ? -1 : 1;
}

static int address(Direct *self, PyObject *given, uint64_t *found) {
  if (Py_TYPE(given) == (PyTypeObject *)self->tensor) return asked(given, data_ptr_name, 1, found);
  if (given == Py_None) {
    *found = 0;
    return 1;
  }
  if (!PyLong_CheckExact(given)) return 0;
  *found = PyLong_AsUnsignedLongLong(given);
  return *found == (uint64_t)-1 && PyErr_Occurred() ? -1 : 1;
}

/* Bytes behind its address that an argument without a descriptor reaches. */
static int reach(Direct *self, PyObject *given, uint64_t *found) {
  if (PyLong_CheckExact(given)) { /* the launch's own */
    *found = 0;
    return 1;
  }
  if (Py_TYPE(given) != (PyTypeObject *)self->tensor) return 0;
  PyObject *is = PyObject_CallMethodNoArgs(given, is_contiguous_name);
  if (is == NULL) return -1;
  int good = is == Py_True;
  Py_DECREF(is);
  return good ? asked(given, nbytes_name, 0, found) : 0;
}

static int number(char kind, PyObject *given, uint8_t *there) {
  if (kind == 'f' || kind == 'd') {
    double value = PyFloat_AsDouble(given);
    if (value == -1.0 && PyErr_Occurred()) return -1;
    float single = (float)value;
    if (kind == 'f' && Py_IS_INFINITY(single) && !Py_IS_INFINITY(value)) return 0;
    kind == 'f' ? memcpy(there, &single, 4) : memcpy(there, &value, 8);
    return 1;
  }
  if (kind == 'Q') {
    if (!PyLong_Check(given)) return 0;
    uint64_t value = PyLong_AsUnsignedLongLong(given);
    if (value == (uint64_t)-1 && PyErr_Occurred()) return -1;
    memcpy(there, &value, 8);
    return 1;
  }
  if (!PyLong_Check(given)) return 0;
  int overflow;
  int64_t value = PyLong_AsLongLongAndOverflow(given, &overflow);
  if (overflow) return 0;
  if (value == -1 && PyErr_Occurred()) return -1;
  int bytes = kind == 'b' || kind == 'B' ? 1 : kind == 'h' || kind == 'H' ? 2 : kind == 'q' ? 8 : 4;
  if (bytes < 8) {
    int is_signed = kind >= 'a';
    int64_t most = ((int64_t)1 << (8 * bytes - is_signed)) - 1, least = is_signed ? -most - 1 : 0;
    if (value < least || value > most) return 0;
  }
  memcpy(there, &value, bytes); /* little-endian, like the card */
  return 1;
}

/* The whole of a tensor: what stands behind its map's address, and the bytes that it reaches. */
static int described(const Part *part, PyObject *shape, PyObject *stride, uint8_t *there, uint64_t *reaches) {
  int rank = part->rank, good = PyTuple_Check(shape) && PyTuple_Check(stride);
  good = good && PyTuple_GET_SIZE(shape) == rank && PyTuple_GET_SIZE(stride) == rank;
  int64_t unit = 16 / part->size, last = 1, sizes[MAX_RANK], strides[MAX_RANK];
  for (int at = 0; good && at < rank; at++) {
    good = whole(PyTuple_GET_ITEM(shape, at), &sizes[at]) == 1 && whole(PyTuple_GET_ITEM(stride, at), &strides[at]) == 1;
    good = good && sizes[at] >= 1 && sizes[at] <= INT32_MAX;
    if (!good) break;
    if (at == rank - 1) {
      good = strides[at] == 1 || sizes[at] == 1;
      strides[at] = 1;
    } else if (sizes[at] > 1) {
      good = strides[at] > 0 && strides[at] < unit << 32 && strides[at] % unit == 0;
    } else {
      strides[at] = unit;
    }
  }
  if (PyErr_Occurred()) return -1;
  if (!good) return 0;
  uint64_t words[MAP_WORDS], from[2 * MAX_RANK];
  memcpy(words, part->constant, sizeof words);
  for (int at = 0; at < rank; at++) {
    from[at] = sizes[at] - 1;
    from[rank + at] = strides[at] / unit;
    last += (sizes[at] - 1) * strides[at];
  }
  for (const Field *one = part->field; one < part->field + part->fields; one++)
    words[one->word] |= (from[one->source] >> one->low & one->mask) << one->shift;
  memcpy(there + 8, words + 1, sizeof words - 8);
  memcpy(there + sizeof words, strides, 8 * rank);
  for (int at = 0; at < rank; at++) {
    int32_t size = (int32_t)sizes[at];
    memcpy(there + sizeof words + 8 * rank + 4 * at, &size, 4);
  }
  *reaches = last * part->size;
  return 1;
}

/* The driver's status, or -1 where there is no context. */
static PyObject *started(Call call, void *function, uint8_t *block, const uint32_t *offset, int count) {
  void *parameters[MAX_PARAMETERS];
  for (int at = 0; at < count; at++) parameters[at] = block + offset[at];
  int answer;
  Py_BEGIN_ALLOW_THREADS
  answer = call(block, function, parameters, NULL);
  Py_END_ALLOW_THREADS
  return PyLong_FromLong(answer == INVALID_CONTEXT ? -1 : answer);
}

/* direct(x, y, z, early, arguments, hidden): the driver's status, or -1 of what is out of the ordinary.

   An argument with a descriptor is (tensor, shape, strides): who launches has these at hand. */
static PyObject *launch(PyObject *callable, PyObject *const *given, size_t flags, PyObject *names) {
  Direct *self = (Direct *)callable;
  if (PyVectorcall_NARGS(flags) != 6 || names != NULL || !PyTuple_Check(given[4]) || !PyTuple_Check(given[5])) {
    PyErr_SetString(PyExc_TypeError, "expected x, y, z, early, and two tuples of arguments");
    return NULL;
  }
  PyObject *arguments = given[4], *hidden = given[5];
  Py_ssize_t user = PyTuple_GET_SIZE(arguments);
  if (user + PyTuple_GET_SIZE(hidden) != self->arguments) return PyLong_FromLong(-1);
  uint8_t memory[MAX_BLOCK + ALIGNMENT], *block = memory + (-(uintptr_t)memory & (ALIGNMENT - 1));
  memcpy(block, self->contents, self->size);
  uint64_t addresses[MAX_PARAMETERS], reaches[MAX_PARAMETERS];
  int status = 1;
  for (int at = 0; at < 3 && status == 1; at++) status = number('I', given[at], block + 4 * at);
  block[self->early] = given[3] == Py_True;
  for (int at = 0; at < self->parts && status == 1; at++) {
    const Part *part = self->part + at;
    PyObject *one = part->argument < user ? PyTuple_GET_ITEM(arguments, part->argument)
                                          : PyTuple_GET_ITEM(hidden, part->argument - user);
    uint8_t *there = block + part->offset;
    if (part->kind == 't') {
      int is_three = PyTuple_Check(one) && PyTuple_GET_SIZE(one) == 3;
      PyObject *tensor = is_three ? PyTuple_GET_ITEM(one, 0) : NULL;
      status = !is_three || Py_TYPE(tensor) != (PyTypeObject *)self->tensor ? 0 : address(self, tensor, &addresses[at]);
      if (status == 1 && addresses[at] & 15) status = 0;
      if (status == 1) status = described(part, PyTuple_GET_ITEM(one, 1), PyTuple_GET_ITEM(one, 2), there, &reaches[at]);
    } else if (part->kind == 'p') {
      status = address(self, one, &addresses[at]);
      if (status == 1 && part->reaches) status = reach(self, one, &reaches[at]);
    } else {
      status = number(part->kind, one, there);
      continue;
    }
    if (status == 1) memcpy(there, &addresses[at], 8);
  }
  if (status < 0) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_OverflowError)) return NULL;
    PyErr_Clear();
  }
  if (status != 1) return PyLong_FromLong(-1);
  for (int at = 0; at < self->pairs; at++) {
    int one = self->pair[2 * at], other = self->pair[2 * at + 1];
    if (addresses[one] < addresses[other] + reaches[other] && addresses[other] < addresses[one] + reaches[one])
      return PyLong_FromLong(-1);
  }
  return started(self->call, self->function, block, self->offset, self->parameters);
}

static void forget(Direct *self) {
  PyObject_GC_UnTrack(self);
  for (int at = 0; self->part != NULL && at < self->parts; at++) PyMem_Free(self->part[at].field);
  PyMem_Free(self->part);
  PyMem_Free(self->pair);
  Py_XDECREF(self->tensor);
  Py_XDECREF(self->kept);
  Py_TYPE(self)->tp_free((PyObject *)self);
}

static int visited(Direct *self, visitproc visit, void *arg) {
  Py_VISIT(self->tensor);
  Py_VISIT(self->kept);
  return 0;
}

static int filled(Part *part, PyObject *described) {
  PyObject *fields;
  Py_buffer constant;
  int kind, reaches;
  if (!PyArg_ParseTuple(described, "ipiIbby*O!", &kind, &reaches, &part->argument, &part->offset, &part->rank,
                        &part->size, &constant, &PyTuple_Type, &fields))
    return -1;
  part->kind = (char)kind;
  part->reaches = (char)reaches;
  int bad = part->rank > MAX_RANK || (kind == 't' && constant.len != sizeof part->constant);
  if (!bad && kind == 't') memcpy(part->constant, constant.buf, sizeof part->constant);
  PyBuffer_Release(&constant);
  part->fields = (int)PyTuple_GET_SIZE(fields);
  part->field = PyMem_Calloc(part->fields + 1, sizeof *part->field);
  if (part->field == NULL) return PyErr_NoMemory() == NULL ? -1 : 0;
  for (int at = 0; !bad && at < part->fields; at++) {
    Field *one = part->field + at;
    unsigned char bits;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(fields, at), "bbbbb", &one->source, &one->low, &bits, &one->word,
                          &one->shift))
      return -1;
    bad = one->source >= 2 * part->rank || one->low > 63 || bits > 63 || one->word >= MAP_WORDS || one->shift > 63;
    one->mask = ((uint64_t)1 << bits) - 1;
  }
  if (bad) PyErr_SetString(PyExc_ValueError, "a part that no launch has");
  return bad ? -1 : 0;
}

static PyObject *made(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(names)) {
  unsigned long long call, function;
  unsigned int early;
  int arguments;
  Py_buffer contents;
  PyObject *offsets, *parts, *pairs, *tensor, *kept;
  if (!PyArg_ParseTuple(args, "KKy*IiO!O!O!OO", &call, &function, &contents, &early, &arguments, &PyTuple_Type, &offsets,
                        &PyTuple_Type, &parts, &PyTuple_Type, &pairs, &tensor, &kept))
    return NULL;
  Direct *self = (Direct *)type->tp_alloc(type, 0);
  if (self == NULL) {
    PyBuffer_Release(&contents);
    return NULL;
  }
  self->vectorcall = launch;
  self->call = (Call)(uintptr_t)call;
  self->function = (void *)(uintptr_t)function;
  self->early = early;
  self->arguments = arguments;
  self->tensor = Py_NewRef(tensor);
  self->kept = Py_NewRef(kept);
  int good = contents.len <= MAX_BLOCK && early < contents.len && PyTuple_GET_SIZE(offsets) <= MAX_PARAMETERS &&
             PyTuple_GET_SIZE(parts) <= MAX_PARAMETERS;
  self->size = good ? (uint32_t)contents.len : 0;
  memcpy(self->contents, contents.buf, self->size);
  PyBuffer_Release(&contents);
  if (!good) goto bad;
  self->parameters = (int)PyTuple_GET_SIZE(offsets);
  for (int at = 0; at < self->parameters; at++) {
    unsigned long offset = PyLong_AsUnsignedLong(PyTuple_GET_ITEM(offsets, at));
    if (PyErr_Occurred() || offset >= self->size) goto bad;
    self->offset[at] = (uint32_t)offset;
  }
  self->part = PyMem_Calloc(PyTuple_GET_SIZE(parts) + 1, sizeof *self->part);
  self->pair = PyMem_Calloc(2 * PyTuple_GET_SIZE(pairs) + 1, sizeof *self->pair);
  if (self->part == NULL || self->pair == NULL) goto bad;
  self->parts = (int)PyTuple_GET_SIZE(parts);
  for (int at = 0; at < self->parts; at++) {
    Part *part = self->part + at;
    if (filled(part, PyTuple_GET_ITEM(parts, at)) < 0) goto bad;
    uint32_t most = part->kind == 't' ? 8 * MAP_WORDS + 12 * part->rank : 8;
    if (part->offset > self->size || self->size - part->offset < most) goto bad;
    if (part->argument < 0 || part->argument >= arguments) goto bad;
  }
  self->pairs = (int)PyTuple_GET_SIZE(pairs);
  for (int at = 0; at < self->pairs; at++) {
    int *pair = self->pair + 2 * at;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(pairs, at), "ii", &pair[0], &pair[1])) goto bad;
    for (int end = 0; end < 2; end++)
      if (pair[end] < 0 || pair[end] >= self->parts || !self->part[pair[end]].reaches) goto bad;
  }
  return (PyObject *)self;
bad:
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "what no launch has");
  Py_DECREF(self);
  return NULL;
}

static PyTypeObject DirectType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "wspec_direct.Direct",
    .tp_basicsize = sizeof(Direct),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC,
    .tp_new = made,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Direct, vectorcall),
    .tp_dealloc = (destructor)forget,
    .tp_traverse = (traverseproc)visited,
};

/* ---- a launch that is made again */

typedef struct {
  int address;  /* which of the launch's */
  uint64_t add; /* to it */
  uint32_t place;
} Write;

typedef struct {
  int one, other;          /* addresses between which no memory is shared */
  uint64_t reach, reached; /* bytes behind each */
} Apart;

typedef struct {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  Call call;
  void *function;
  PyObject *kept;
  uint32_t size;
  int addresses, parameters, writes, pairs;
  uint8_t *contents;
  uint32_t *offset;
  Write *write;
  Apart *apart;
} Again;

/* again(*addresses): the driver's status, or -1 of arguments that overlap, and of what is no address. */
static PyObject *repeated(PyObject *callable, PyObject *const *given, size_t flags, PyObject *names) {
  Again *self = (Again *)callable;
  if (PyVectorcall_NARGS(flags) != self->addresses || names != NULL) {
    PyErr_SetString(PyExc_TypeError, "expected the addresses of the launch's arguments");
    return NULL;
  }
  uint64_t address[MAX_PARAMETERS];
  for (int at = 0; at < self->addresses; at++) {
    address[at] = PyLong_AsUnsignedLongLong(given[at]);
    if (address[at] == (uint64_t)-1 && PyErr_Occurred()) {
      PyErr_Clear();
      return PyLong_FromLong(-1);
    }
  }
  for (const Apart *pair = self->apart; pair < self->apart + self->pairs; pair++) {
    uint64_t one = address[pair->one], other = address[pair->other];
    if (one < other + pair->reached && other < one + pair->reach) return PyLong_FromLong(-1);
  }
  uint8_t memory[MAX_BLOCK + ALIGNMENT], *block = memory + (-(uintptr_t)memory & (ALIGNMENT - 1));
  memcpy(block, self->contents, self->size);
  for (const Write *one = self->write; one < self->write + self->writes; one++) {
    uint64_t found = address[one->address] + one->add;
    memcpy(block + one->place, &found, 8);
  }
  return started(self->call, self->function, block, self->offset, self->parameters);
}

static void forget_again(Again *self) {
  PyObject_GC_UnTrack(self);
  PyMem_Free(self->contents);
  PyMem_Free(self->offset);
  PyMem_Free(self->write);
  PyMem_Free(self->apart);
  Py_XDECREF(self->kept);
  Py_TYPE(self)->tp_free((PyObject *)self);
}

static int visited_again(Again *self, visitproc visit, void *arg) {
  Py_VISIT(self->kept);
  return 0;
}

static PyObject *made_again(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(names)) {
  unsigned long long call, function;
  Py_buffer contents;
  PyObject *offsets, *writes, *pairs, *kept;
  int addresses;
  if (!PyArg_ParseTuple(args, "KKy*iO!O!O!O", &call, &function, &contents, &addresses, &PyTuple_Type, &offsets,
                        &PyTuple_Type, &writes, &PyTuple_Type, &pairs, &kept))
    return NULL;
  Again *self = (Again *)type->tp_alloc(type, 0);
  if (self == NULL) {
    PyBuffer_Release(&contents);
    return NULL;
  }
  self->vectorcall = repeated;
  self->call = (Call)(uintptr_t)call;
  self->function = (void *)(uintptr_t)function;
  self->kept = Py_NewRef(kept);
  self->addresses = addresses;
  self->parameters = (int)PyTuple_GET_SIZE(offsets);
  self->writes = (int)PyTuple_GET_SIZE(writes);
  self->pairs = (int)PyTuple_GET_SIZE(pairs);
  int good = contents.len <= MAX_BLOCK && addresses >= 0 && addresses <= MAX_PARAMETERS &&
             self->parameters <= MAX_PARAMETERS;
  self->size = good ? (uint32_t)contents.len : 0;
  self->contents = PyMem_Malloc(self->size + 1);
  self->offset = PyMem_Calloc(self->parameters + 1, sizeof *self->offset);
  self->write = PyMem_Calloc(self->writes + 1, sizeof *self->write);
  self->apart = PyMem_Calloc(self->pairs + 1, sizeof *self->apart);
  good = good && self->contents != NULL && self->offset != NULL && self->write != NULL && self->apart != NULL;
  if (good) memcpy(self->contents, contents.buf, self->size);
  PyBuffer_Release(&contents);
  for (int at = 0; good && at < self->parameters; at++) {
    unsigned long offset = PyLong_AsUnsignedLong(PyTuple_GET_ITEM(offsets, at));
    good = !PyErr_Occurred() && offset < self->size;
    self->offset[at] = (uint32_t)offset;
  }
  for (int at = 0; good && at < self->writes; at++) {
    Write *one = self->write + at;
    long long add;
    good = PyArg_ParseTuple(PyTuple_GET_ITEM(writes, at), "iLI", &one->address, &add, &one->place) &&
           one->address >= 0 && one->address < addresses && self->size >= 8 && one->place <= self->size - 8;
    one->add = (uint64_t)add;
  }
  for (int at = 0; good && at < self->pairs; at++) {
    Apart *pair = self->apart + at;
    unsigned long long reach, reached;
    good = PyArg_ParseTuple(PyTuple_GET_ITEM(pairs, at), "iKiK", &pair->one, &reach, &pair->other, &reached) &&
           pair->one >= 0 && pair->one < addresses && pair->other >= 0 && pair->other < addresses;
    pair->reach = reach;
    pair->reached = reached;
  }
  if (good) return (PyObject *)self;
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "what no launch has");
  Py_DECREF(self);
  return NULL;
}

static PyTypeObject AgainType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "wspec_direct.Again",
    .tp_basicsize = sizeof(Again),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC,
    .tp_new = made_again,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Again, vectorcall),
    .tp_dealloc = (destructor)forget_again,
    .tp_traverse = (traverseproc)visited_again,
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "wspec_direct", .m_size = -1};

PyMODINIT_FUNC PyInit_wspec_direct(void) {
  data_ptr_name = PyUnicode_InternFromString("data_ptr");
  nbytes_name = PyUnicode_InternFromString("nbytes");
  is_contiguous_name = PyUnicode_InternFromString("is_contiguous");
  PyObject *module = PyModule_Create(&definition);
  if (module == NULL || PyType_Ready(&DirectType) < 0 || PyType_Ready(&AgainType) < 0) return NULL;
  if (PyModule_AddObjectRef(module, "Direct", (PyObject *)&DirectType) < 0) return NULL;
  return PyModule_AddObjectRef(module, "Again", (PyObject *)&AgainType) < 0 ? NULL : module;
}
