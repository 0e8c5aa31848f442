// Number formats by number, as macros name them (A_TYPE, TYPE…), and the 16-bit ones as floats.
#define F32 0
#define F16 1
#define BF16 2
#define S8 3
#define U8 4
#define S32 5
#define Q8_0 6
#define Q4_0 7
#define Q4_1 8
#define S8C 9
// Their elements in memory, by number; of blocks the bytes. ELEMENT(TYPE) is one of them.
#define ELEMENT_0 float
#define ELEMENT_1 ushort
#define ELEMENT_2 ushort
#define ELEMENT_3 char
#define ELEMENT_4 uchar
#define ELEMENT_5 int
#define ELEMENT_6 uchar
#define ELEMENT_7 uchar
#define ELEMENT_8 uchar
#define ELEMENT_9 char
#define ELEMENT(TYPE) CAT(ELEMENT_, TYPE)

#if CODE_PATH == 1
float float_of_half(ushort bits) {
  float v;
  asm volatile("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(bits));
  return v;
}
#else
float float_of_half(ushort bits) { return vload_half(0, (const __private half*)&bits); }
#endif
float float_of_bfloat(ushort bits) { return as_float((uint)bits << 16); }
