package azure

import (
	"context"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/marketplaceordering/armmarketplaceordering"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

const (
	// imageTime is how long it is assumed that an image has the same plan, and that its agreement is
	// accepted.
	imageTime = time.Hour
	// maxImages is how many images are remembered: those that were used last.
	maxImages = 1000
)

// marketImage is an image of the marketplace.
type marketImage struct {
	id string
	// plan has to be named with each VM of the image; nil for an image without one.
	plan *armcompute.Plan
}

// imageKey identifies an image in a subscription.
type imageKey struct {
	cloud, subscription, location, urn string
	agreed                             bool // its agreement is accepted
}

// market returns the image that a URN names. With agree the agreement of its plan is accepted, if
// it has one. It sends up to three requests; for an image that it returned before, none.
func (s *session) market(ctx context.Context, location, urn string, agree bool) (marketImage, error) {
	key := imageKey{s.cloud, s.subscription, location, urn, agree}
	known, _ := s.driver.images.Get(key)
	if image, ok := known.(marketImage); ok {
		return image, nil
	}
	parts := strings.Split(urn, ":")
	answer, err := send(ctx, s, func(ctx context.Context) (armcompute.VirtualMachineImagesClientGetResponse, error) {
		return s.images.Get(ctx, location, parts[0], parts[1], parts[2], parts[3], nil)
	})
	if err != nil {
		return marketImage{}, err
	}
	image := marketImage{id: value(answer.ID)}
	if answer.Properties != nil && answer.Properties.Plan != nil {
		plan := answer.Properties.Plan
		image.plan = &armcompute.Plan{Name: plan.Name, Product: plan.Product, Publisher: plan.Publisher}
		if agree {
			if err := s.agree(ctx, *image.plan); err != nil {
				return marketImage{}, err
			}
		}
	}
	s.driver.images.Add(key, image, imageTime)
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
		return driver.Errorf(s.op, driver.NotFound, "the marketplace has no agreement for plan %s:%s:%s, so that it cannot be accepted: %w",
			publisher, product, name, err)
	case err != nil:
		return err
	case terms.Properties == nil:
		return driver.Errorf(s.op, driver.Internal, "the cloud answered with an agreement without terms for plan %s:%s:%s",
			publisher, product, name)
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
