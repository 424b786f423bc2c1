package machine

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// fieldsTimeout bounds the question, for which a driver sends no request.
const fieldsTimeout = 5 * time.Second

// checkFields asks the driver which fields of the class it ignores, and reports them on the class.
// An error of the driver, which sends no request for that, is a Failure. Errors: those of the API
// server, the end of ctx or of the ownership.
func (c *classes) checkFields(ctx context.Context, p *pass) error {
	call, cancel := context.WithTimeout(ctx, fieldsTimeout)
	defer cancel()
	resp, err := p.driver.GetUnknownFields(call, driver.GetUnknownFieldsRequest{Class: p.world.Class.Class})
	code := driver.CodeOf(err)
	switch {
	case code == driver.OK, code == driver.Unimplemented:
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", lifecycle.CheckFields, ctx.Err())
	case runner.NotOurs(err):
		return fmt.Errorf("%s: %w", lifecycle.CheckFields, err)
	default:
		p.world.Failure = &lifecycle.Failure{
			Code: code, Op: driver.OpFields, RetryAfter: driver.RetryAfterOf(err), Message: driver.MessageOf(err),
		}
		return nil
	}
	fact := lifecycle.FieldsFact{Read: true, Unreported: code == driver.Unimplemented, Unknown: resp.Fields, Refused: resp.Refused}
	if err := c.reportFields(ctx, p, fact); err != nil {
		return err
	}
	p.world.Class.Fields = fact
	return nil
}

// reportFields writes what is known of the fields on the class, with an Event, if the class does
// not have it. One pass at a time does so, see addFinalizers.
func (c *classes) reportFields(ctx context.Context, p *pass, fact lifecycle.FieldsFact) error {
	note, event := lifecycle.FieldsNote(p.world.Class.Class, fact)
	if p.world.Class.Class.Annotations[v1alpha1.AnnotationUnknownFields] == note {
		return nil
	}
	unlock, err := c.writing.Lock(ctx, objectcache.Key(p.world.Class.Class))
	if err != nil {
		return fmt.Errorf("wait for passes that write the class: %w", err)
	}
	defer unlock()
	class := c.latest.Newest(p.world.Class.Class)
	if class.Annotations[v1alpha1.AnnotationUnknownFields] == note {
		return nil // another pass has written it while this one waited
	}
	changed := class.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, v1alpha1.AnnotationUnknownFields, note)
	if note == "" {
		delete(changed.Annotations, v1alpha1.AnnotationUnknownFields)
	}
	_, err = c.latest.Commit(ctx, class, changed)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("report unknown fields on MachineClass %s: %w", class.Name, err)
	}
	if err == nil && event != "" {
		telemetry.Emit(ctx, c.events, class, v1alpha1.EventUnknownFields, event)
	}
	return nil
}
