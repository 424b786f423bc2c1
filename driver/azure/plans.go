package azure

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/marketplaceordering/armmarketplaceordering"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

const (
	// planTime is how long it is believed that an image has the same plan, and that its agreement is accepted.
	planTime = time.Hour
	// maxPlans is how many images are remembered. When there are more all are forgotten.
	maxPlans = 1000
)

// marketImage is an image of the marketplace.
type marketImage struct {
	id string
	// plan has to be named with each VM of the image; nil for an image without one.
	plan  *armcompute.Plan
	until time.Time
}

// plans remembers images, so that few creates look for them.
type plans struct {
	mu  sync.Mutex
	all map[planKey]marketImage
}

// planKey identifies an image in a subscription.
type planKey struct {
	cloud, subscription, location, urn string
	agreed                             bool // its agreement is accepted
}

func newPlans() *plans { return &plans{all: map[planKey]marketImage{}} }

func (p *plans) get(key planKey, now time.Time) (image marketImage, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	image, ok = p.all[key]
	return image, ok && now.Before(image.until)
}

func (p *plans) put(key planKey, image marketImage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.all) >= maxPlans {
		clear(p.all)
	}
	p.all[key] = image
}

// market returns the image that a URN names. With agree the agreement of its plan is accepted, if it has one. It makes up to three
// requests; for an image that it returned before, none.
func (s *session) market(ctx context.Context, location, urn string, agree bool) (marketImage, error) {
	key, now := planKey{s.cloud, s.subscription, location, urn, agree}, s.driver.clock.Now()
	if image, ok := s.driver.plans.get(key, now); ok {
		return image, nil
	}
	parts := strings.Split(urn, ":")
	answer, err := send(ctx, s, func(ctx context.Context) (armcompute.VirtualMachineImagesClientGetResponse, error) {
		return s.images.Get(ctx, location, parts[0], parts[1], parts[2], parts[3], nil)
	})
	if err != nil {
		return marketImage{}, err
	}
	image := marketImage{id: value(answer.ID), until: now.Add(planTime)}
	if answer.Properties != nil && answer.Properties.Plan != nil {
		plan := answer.Properties.Plan
		image.plan = &armcompute.Plan{Name: plan.Name, Product: plan.Product, Publisher: plan.Publisher}
		if agree {
			if err := s.agree(ctx, *image.plan); err != nil {
				return marketImage{}, err
			}
		}
	}
	s.driver.plans.put(key, image)
	return image, nil
}

// agree accepts the agreement of a plan, unless it is accepted.
func (s *session) agree(ctx context.Context, plan armcompute.Plan) error {
	const offer = armmarketplaceordering.OfferTypeVirtualmachine
	publisher, product, name := value(plan.Publisher), value(plan.Product), value(plan.Name)
	terms, err := send(ctx, s, func(ctx context.Context) (armmarketplaceordering.MarketplaceAgreementsClientGetResponse, error) {
		return s.agreements.Get(ctx, offer, publisher, product, name, nil)
	})
	switch {
	case driver.CodeOf(err) == driver.NotFound:
		return driver.Errorf(s.op, driver.NotFound, "the marketplace has no agreement for plan %s:%s:%s, so that it cannot be accepted: %w", publisher, product, name, err)
	case err != nil:
		return err
	case terms.Properties == nil:
		return driver.Errorf(s.op, driver.Internal, "the cloud answered with an agreement without terms for plan %s:%s:%s", publisher, product, name)
	case value(terms.Properties.Accepted):
		return nil
	}
	accepted := terms.AgreementTerms
	accepted.Properties.Accepted = new(true)
	_, err = send(ctx, s, func(ctx context.Context) (armmarketplaceordering.MarketplaceAgreementsClientCreateResponse, error) {
		return s.agreements.Create(ctx, offer, publisher, product, name, accepted, nil)
	})
	return err
}
