package connection

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/pacing"
)

// The values that are decoded at once and in a second: clients decode an answer after they have
// closed it, so that nothing shows how long its values are in memory. Decoding 50,000 empty
// containers takes 110 ms. bytesOfValue bytes count as a value, too. An answer begins when those
// before it have left less than these at once, so that there is one more at most.
const (
	atOnceOfAll, perSecondOfAll = 150_000, 400_000
	atOnceOfOne, perSecondOfOne = 50_000, 400_000
	bytesOfValue                = 64
	// atOnceOfList and perSecondOfList bound the time that one connection costs. 5,000 Nodes have
	// three million values.
	atOnceOfList, perSecondOfList = 20_000_000, 100_000
	// longestWait is more than any of these take: the clock was set back.
	longestWait = time.Minute
)

// decodes bounds how many values are decoded at a time, of each connection and of all together.
// Answers with more wait. newDecodes returns one.
type decodes struct {
	mu      sync.Mutex // from a decision to its count
	all     *pacing.Rates[struct{}]
	of, cpu *pacing.Rates[*inWork]
}

// ofProcess counts the values of all target clusters.
var ofProcess = newDecodes() //nolint:gochecknoglobals // a process has one memory

func newDecodes() *decodes {
	return &decodes{
		all: pacing.NewRates[struct{}](atOnceOfAll, time.Second/perSecondOfAll),
		of:  pacing.NewRates[*inWork](atOnceOfOne, time.Second/perSecondOfOne),
		cpu: pacing.NewRates[*inWork](atOnceOfList, time.Second/perSecondOfList),
	}
}

// await returns when so many values of a connection may be decoded. Errors: the end of ctx.
func (d *decodes) await(ctx context.Context, c clock.Clock, of *inWork, values int) error {
	return await(ctx, c, func() time.Duration { return d.take(of, values, c.Now()) })
}

// take counts values of a connection, or returns after which time it may be called again.
func (d *decodes) take(of *inWork, values int, now time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	wait := max(d.all.Wait(struct{}{}, now), d.of.Wait(of, now), d.cpu.Wait(of, now))
	if wait > longestWait {
		d.all.Forget(struct{}{})
		d.of.Forget(of)
		d.cpu.Forget(of)
	} else if wait > 0 {
		return wait
	}
	d.all.CountTimes(struct{}{}, values, now)
	d.of.CountTimes(of, values, now)
	d.cpu.CountTimes(of, values, now)
	return 0
}

// await returns when there is no wait any more. Errors: the end of ctx.
func await(ctx context.Context, c clock.Clock, next func() time.Duration) error {
	for {
		wait := next()
		if wait == 0 {
			return nil
		}
		timer := c.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C():
		}
	}
}
