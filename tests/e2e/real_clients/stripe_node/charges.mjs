// Charges orders, all at once, and prints the charge of each: charges.mjs HOST PORT ORDERS

import Stripe from "stripe";

const [host, port, orders] = process.argv.slice(2);
const stripe = new Stripe("sk_test_selfsame", {
  host,
  port: Number(port),
  protocol: "http",
  maxNetworkRetries: 5,
});

const charge = (_, order) =>
  stripe.charges.create({
    amount: 2000,
    currency: "eur",
    source: "tok_visa",
    description: `order-${order}`,
  });

const charges = await Promise.all(Array.from({ length: Number(orders) }, charge));
console.log(charges.map(({ id }) => id).join("\n"));
// The SDK leaves an answer after which it tries again unread, and its connection keeps Node running.
process.exit();
