package cloudsim

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// store keeps the cloud's state in one file. Each change is one transaction that has reached the
// kernel when it returns: nothing is lost when this process dies. Nothing is flushed to the disk,
// so a power cut may lose all of it.
type store struct{ db *bolt.DB }

// The buckets; each maps a key to JSON.
var (
	bucketInstances = []byte("instances") // by ID
	bucketVolumes   = []byte("volumes")   // by ID
	bucketCalls     = []byte("calls")     // by call ID: those that took effect and are not in the call log yet
	bucketLeftovers = []byte("leftovers") // by ID
	bucketMeta      = []byte("meta")
)

// keySettings is the key of savedSettings in bucketMeta.
var keySettings = []byte("settings")

// savedSettings are the settings, and those that the cloud was started with.
type savedSettings struct {
	Start   cloudapi.Settings `json:"start"`
	Current cloudapi.Settings `json:"current"`
}

// contents is the content of a store.
type contents struct {
	instances []*instance // in the order in which they were created
	volumes   []*cloudapi.Volume
	leftovers []*cloudapi.Leftover
	calls     []cloudapi.Call // without an end
	settings  *savedSettings  // nil in a new store
}

// change is written atomically.
type change struct {
	instances       []*instance
	volumes         []*cloudapi.Volume
	forgetInstances []string
	forgetVolumes   []string
	leftovers       []*cloudapi.Leftover
	forgetLeftovers []string
	settings        *savedSettings
	// call is the call that makes the change; kept until it is in logged.
	call   *cloudapi.Call
	logged []uint64
}

// openStore opens the file, or creates it. It is an error if another process has it open.
func openStore(path string) (*store, error) {
	db, err := bolt.Open(path, 0o600, &bolt.Options{
		Timeout: time.Second, NoSync: true, NoGrowSync: true, NoFreelistSync: true, FreelistType: bolt.FreelistMapType,
	})
	if err != nil {
		return nil, fmt.Errorf("open the state in %s (another cloudsim that uses it has to stop first): %w", path, err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		for _, name := range [][]byte{bucketInstances, bucketVolumes, bucketLeftovers, bucketCalls, bucketMeta} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return fmt.Errorf("create bucket %s: %w", name, err)
			}
		}
		return nil
	})
	if err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("prepare %s: %w", path, err)
	}
	return &store{db}, nil
}

func (s *store) close() error { return s.db.Close() }

// load reads everything.
func (s *store) load() (contents, error) {
	var all contents
	err := s.db.View(func(tx *bolt.Tx) error {
		if raw := tx.Bucket(bucketMeta).Get(keySettings); raw != nil {
			if err := json.Unmarshal(raw, &all.settings); err != nil {
				return fmt.Errorf("settings: %w", err)
			}
		}
		if err := each(tx, bucketInstances, func(i *instance) { all.instances = append(all.instances, i) }); err != nil {
			return err
		}
		if err := each(tx, bucketVolumes, func(v *cloudapi.Volume) { all.volumes = append(all.volumes, v) }); err != nil {
			return err
		}
		if err := each(tx, bucketLeftovers, func(l *cloudapi.Leftover) { all.leftovers = append(all.leftovers, l) }); err != nil {
			return err
		}
		return each(tx, bucketCalls, func(c *cloudapi.Call) { all.calls = append(all.calls, *c) })
	})
	if err != nil {
		return contents{}, fmt.Errorf("read the state: %w", err)
	}
	return all, nil
}

func each[T any](tx *bolt.Tx, bucket []byte, visit func(*T)) error {
	return tx.Bucket(bucket).ForEach(func(key, raw []byte) error {
		var v T
		if err := json.Unmarshal(raw, &v); err != nil {
			return fmt.Errorf("%s %q: %w", bucket, key, err)
		}
		visit(&v)
		return nil
	})
}

// sequence returns numbers that were never returned before: one for each name and call.
func (s *store) sequence(name []byte) (uint64, error) {
	var n uint64
	err := s.db.Update(func(tx *bolt.Tx) (err error) {
		n, err = tx.Bucket(name).NextSequence()
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("next number of %s: %w", name, err)
	}
	return n, nil
}

// apply writes a change.
func (s *store) apply(ch change) error {
	err := s.db.Update(func(tx *bolt.Tx) error {
		for _, i := range ch.instances {
			if err := put(tx, bucketInstances, idKey(i.API.ID), i); err != nil {
				return err
			}
		}
		for _, v := range ch.volumes {
			if err := put(tx, bucketVolumes, idKey(v.ID), v); err != nil {
				return err
			}
		}
		for _, l := range ch.leftovers {
			if err := put(tx, bucketLeftovers, idKey(l.ID), l); err != nil {
				return err
			}
		}
		if ch.call != nil {
			if err := put(tx, bucketCalls, callKey(ch.call.ID), ch.call); err != nil {
				return err
			}
		}
		if ch.settings != nil {
			if err := put(tx, bucketMeta, keySettings, ch.settings); err != nil {
				return err
			}
		}
		return errors.Join(
			drop(tx, bucketInstances, ch.forgetInstances, idKey),
			drop(tx, bucketVolumes, ch.forgetVolumes, idKey),
			drop(tx, bucketLeftovers, ch.forgetLeftovers, idKey),
			drop(tx, bucketCalls, ch.logged, callKey),
		)
	})
	if err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	return nil
}

func put(tx *bolt.Tx, bucket, key []byte, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode %s %q: %w", bucket, key, err)
	}
	if err := tx.Bucket(bucket).Put(key, raw); err != nil {
		return fmt.Errorf("put %s %q: %w", bucket, key, err)
	}
	return nil
}

func drop[T any](tx *bolt.Tx, bucket []byte, ids []T, key func(T) []byte) error {
	for _, id := range ids {
		if err := tx.Bucket(bucket).Delete(key(id)); err != nil {
			return fmt.Errorf("delete %s %v: %w", bucket, id, err)
		}
	}
	return nil
}

func idKey(id string) []byte { return []byte(id) }

func callKey(id uint64) []byte { return binary.BigEndian.AppendUint64(nil, id) }
