  ;; A string that goes from one inner component to another one in another encoding, for ever: the host copies a mebibyte for the fuel
  ;; of some instructions.
  (import "skysail:probe/strings" "take-utf16" (func $take-utf16 (param i32 i32)))
  (import "skysail:probe/strings" "take-latin1" (func $take-latin1 (param i32 i32)))
  (memory (export "memory") 17)
  (func $attack (result i32)
    (loop $again
      (call $take-utf16 (i32.const 65536) (i32.const 1048576))
      (call $take-latin1 (i32.const 65536) (i32.const 1048576))
      (br $again))
    (unreachable))
