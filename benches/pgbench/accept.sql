-- The statements of one accept, as rollhook sends them when nobody else is about, each a transaction of its own: the
-- webhook's token is looked up, then the app, and then the deploy is accepted. Run with
--   pgbench -n -M simple -c 64 -j 1 -T 5 -D apps=1000 -D keyed=0 -f accept.sql URL
-- on a database in which rollhook has made its schema, and the apps `load-test/app-10000` and following, one above the
-- other. The bench empties `rollhook.wake` there, so that no accept waits for the lock of another's notification.
\set app random(10000, 9999 + :apps)
SELECT l.item, l.uid, l.sealed, l.token_created_at, l.created_at, l.body, l.policy, l.holds, l.guard FROM rollhook.look_up($json$[{"item":0,"namespace":"load-test","name":"app-:app"}]$json$) l;
SELECT l.item, l.uid, l.sealed, l.token_created_at, l.created_at, l.body, l.policy, l.holds, l.guard FROM rollhook.look_up($json$[{"item":0,"namespace":"load-test","name":"app-:app"}]$json$) l \gset
\set id random(100000000000000000, 999999999999999999)
\if :keyed
SELECT w.item, w.outcome, w.superseded, (w.entry).revision, (w.entry).step, (w.entry).superseded_by, (w.entry).by_rollback, (w.entry).created_at, (w.entry).updated_at, (w.entry).body FROM rollhook.write('pgbench', 100, 100, $json$[{"item":0,"uid":":uid","admits":true,"body":"{\"id\":\"00000000000000:id\",\"image\":\"registry.example.com/shop/api:4f2a9c1\",\"commit\":\"4f2a9c1\",\"trigger\":\"webhook\",\"actor\":\"ci\",\"from\":null,\"effective\":null,\"adopted\":false,\"state\":{\"status\":\"queued\"},\"touched\":false,\"digest\":null}","header":0,"key":"run-:id","request":"5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c","key_millis":86400000,"guard": :guard,"after":null,"supersedes":false,"rollback":false,"restore":false,"hold":null}]$json$) w;
\else
SELECT w.item, w.outcome, w.superseded, (w.entry).revision, (w.entry).step, (w.entry).superseded_by, (w.entry).by_rollback, (w.entry).created_at, (w.entry).updated_at, (w.entry).body FROM rollhook.write('pgbench', 100, 100, $json$[{"item":0,"uid":":uid","admits":true,"body":"{\"id\":\"00000000000000:id\",\"image\":\"registry.example.com/shop/api:4f2a9c1\",\"commit\":\"4f2a9c1\",\"trigger\":\"webhook\",\"actor\":\"ci\",\"from\":null,\"effective\":null,\"adopted\":false,\"state\":{\"status\":\"queued\"},\"touched\":false,\"digest\":null}","header":null,"key":null,"request":null,"key_millis":null,"guard": :guard,"after":null,"supersedes":false,"rollback":false,"restore":false,"hold":null}]$json$) w;
\endif
