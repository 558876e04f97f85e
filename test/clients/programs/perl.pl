# Perl's Redis against HOST PORT: a line a check, and an error status where one fails.
use strict;
use warnings;
use Redis;

my ($host, $port) = @ARGV;
my $failed = 0;

sub check {
    my ($name, $want, $f) = @_;
    my $got = eval { join ' ', map { $_ // 'undef' } $f->() } // "error: $@";
    my $ok = $got eq $want;
    $failed++ unless $ok;
    print $ok ? "ok $name\n" : "FAILED $name: $got, want $want\n";
}

print "perl Redis $Redis::VERSION\n";
my $r = Redis->new(server => "$host:$port");
check('set, get', 'OK 1', sub { ($r->set('pl:a', 1), $r->get('pl:a')) });
check('get of a missing key', 'undef', sub { scalar $r->get('pl:nope') });
check('setex', 'OK 10', sub { ($r->setex('pl:e', 10, 1), $r->ttl('pl:e')) });
check('incr', '2', sub { $r->incr('pl:a') });
check('pipelining', '2', sub { my @got; $r->set('pl:b', 2, sub { }); $r->get('pl:b', sub { push @got, $_[0] }); $r->wait_all_responses; @got });
check('multi', 'OK', sub { $r->multi; $r->set('pl:b', 1); $r->exec });
check('hash', '1 a 1', sub { ($r->hset('pl:h', 'a', 1), $r->hgetall('pl:h')) });
check('sorted set', '1 a', sub { ($r->zadd('pl:z', 1, 'a'), $r->zrange('pl:z', 0, -1)) });
check('eval', '4', sub { $r->eval("return redis.call('GET', KEYS[1]) * ARGV[1]", 1, 'pl:a', 2) });
$r->set("pl:scan:$_", 'x') for 1 .. 100;
check('scan', '100', sub {
    my ($cursor, %found) = (0);
    do {
        ($cursor, my $keys) = $r->scan($cursor, MATCH => 'pl:scan:*');
        $found{$_} = 1 for @$keys;
    } while $cursor ne '0';
    scalar keys %found;
});
check('info', '1', sub { exists $r->info->{redis_version} });
check('del', '1', sub { $r->del($r->keys('pl:*')) > 100 });
exit($failed > 0);
