  ;; Common part of every hand-written probe: its identity, an allocator, and a master that returns the result of the attack. Memory 0 is the one of the ABI.
  ;; A probe brings its memories and `$attack`, which gives a pointer to a `result<list<string>, error>`; the test asks for `list`.
  (global $free (mut i32) (i32.const 8192))
  (data (i32.const 1024) "probe")
  ;; identity.info: name, version, description; no schemes; no cluster id, no serial calls; nothing extra
  (data (i32.const 1104) "\00\04\00\00\05\00\00\00\00\04\00\00\05\00\00\00\00\04\00\00\05\00\00\00\00\04\00\00\00\00\00\00\00\00\00\00\00\04\00\00\00\00\00\00")
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (local $at i32)
    (local.set $at (global.get $free))
    (global.set $free (i32.add (local.get $at) (i32.and (i32.add (local.get 3) (i32.const 7)) (i32.const -8))))
    (local.get $at))
  (func (export "skysail:provider/identity@0.1.0#describe") (result i32) (i32.const 1104))
  (func (export "skysail:provider/identity@0.1.0#check-config") (param i32 i32) (result i32) (i32.const 1160))
  (func (export "skysail:provider/identity@0.1.0#origins") (param i32 i32) (result i32) (i32.const 1160))
  (func (export "skysail:legacy/clusters@0.1.0#list") (result i32) (call $attack))
  (func (export "skysail:legacy/clusters@0.1.0#master") (param i32 i32) (result i32)
    (i32.store (i32.const 1208) (local.get 0))
    (i32.store (i32.const 1212) (local.get 1))
    (i32.const 1200))
