  ;; Harmless alone: the test combines it with twenty further core instances.
  (memory (export "memory") 1)
  (func $attack (result i32) (i32.const 1200))
