<?php
// phpredis against HOST PORT, and PHP's sessions: a line a check, and an error status where one fails.
[, $host, $port] = $argv;
ini_set('session.save_handler', 'redis');
ini_set('session.save_path', "tcp://$host:$port");
ini_set('session.use_cookies', '0');
ini_set('session.cache_limiter', '');
ob_start(); // sessions begin before anything is written
$failed = 0;

function check(string $name, mixed $want, callable $f): void
{
    global $failed, $r;
    try {
        $got = $f();
    } catch (\Throwable $e) {
        $got = $e->getMessage();
    }
    if ($got !== $want) {
        $failed++;
        echo "FAILED $name: ", json_encode($got), ', want ', json_encode($want), ' ', $r->getLastError(), "\n";
        $r->clearLastError();
        return;
    }
    echo "ok $name\n";
}

echo 'phpredis ', phpversion('redis'), "\n";
$r = new Redis();
$r->connect($host, (int) $port);
check('set, get', [true, '1'], fn () => [$r->set('php:a', '1'), $r->get('php:a')]);
check('get of a missing key', false, fn () => $r->get('php:nope'));
check('set with expiry', [true, 10], fn () => [$r->set('php:e', '1', 10), $r->ttl('php:e')]);
check('setex', true, fn () => $r->setex('php:e', 10, '1'));
check('set nx', [true, false], fn () => [$r->set('php:nx', '1', ['nx', 'ex' => 10]), $r->set('php:nx', '1', ['nx', 'ex' => 10])]);
check('incr', 2, fn () => $r->incr('php:a'));
check('mget', ['2', false], fn () => $r->mget(['php:a', 'php:nope']));
check('multi', [true, '1'], fn () => $r->multi()->set('php:b', '1')->get('php:b')->exec());
check('pipeline', [true, '1'], fn () => $r->pipeline()->set('php:b', '1')->get('php:b')->exec());
check('hash', [1, ['a' => '1']], fn () => [$r->hSet('php:h', 'a', '1'), $r->hGetAll('php:h')]);
check('sorted set', [1, ['a']], fn () => [$r->zAdd('php:z', 1, 'a'), $r->zRange('php:z', 0, -1)]);
check('eval', 4, fn () => $r->eval("return redis.call('GET', KEYS[1]) * ARGV[1]", ['php:a', 2], 1));
for ($i = 0; $i < 100; $i++) {
    $r->set("php:scan:$i", 'x');
}
check('scan', 100, function () use ($r) {
    $r->setOption(Redis::OPT_SCAN, Redis::SCAN_RETRY);
    $found = [];
    for ($cursor = null; ($keys = $r->scan($cursor, 'php:scan:*')) !== false;) {
        $found = array_merge($found, $keys);
    }
    return count(array_unique($found));
});
check('pconnect', true, function () use ($host, $port) {
    $persistent = new Redis();
    $persistent->pconnect($host, (int) $port);
    return $persistent->ping();
});
check('info', true, fn () => isset($r->info()['redis_version']));
check('session', [true, 1], function () {
    session_start();
    $_SESSION['n'] = 1;
    $id = session_id();
    $stored = session_write_close();
    $_SESSION = [];
    session_id($id);
    session_start();
    return [$stored, $_SESSION['n'] ?? null];
});
check('session_destroy', true, fn () => session_destroy());
check('del', true, fn () => $r->del($r->keys('php:*')) > 100);
ob_end_flush();
exit($failed > 0 ? 1 : 0);
