  ;; A resource that is created and dropped, forever.
  (import "[export]skysail:probe/things" "[resource-new]thing" (func $new (param i32) (result i32)))
  (import "[export]skysail:probe/things" "[resource-drop]thing" (func $drop (param i32)))
  (memory (export "memory") 1)
  (func $attack (result i32)
    (loop $again (call $drop (call $new (i32.const 1))) (br $again))
    (unreachable))
