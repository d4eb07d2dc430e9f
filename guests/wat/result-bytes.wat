  ;; A list of 100,000 strings that are all the same megabyte: a copy of them has a hundred gigabytes.
  (memory (export "memory") 64)
  (func $attack (result i32)
    (local $i i32)
    (loop $again
      (i32.store (i32.add (i32.const 0x100000) (i32.shl (local.get $i) (i32.const 3))) (i32.const 0x200000))
      (i32.store (i32.add (i32.const 0x100004) (i32.shl (local.get $i) (i32.const 3))) (i32.const 0x100000))
      (br_if $again (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 100000))))
    (i32.store (i32.const 1208) (i32.const 0x100000))
    (i32.store (i32.const 1212) (i32.const 100000))
    (i32.const 1200))
