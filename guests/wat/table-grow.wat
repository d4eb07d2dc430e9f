  ;; Growth by zero elements, forever.
  (memory (export "memory") 1)
  (table $table 1 funcref)
  (func $attack (result i32)
    (loop $again (br_if $again (i32.ne (table.grow $table (ref.null func) (i32.const 0)) (i32.const -1))))
    (unreachable))
