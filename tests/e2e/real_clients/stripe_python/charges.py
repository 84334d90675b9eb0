"""Charges orders, all at once, and prints the charge of each: charges.py HOST PORT ORDERS"""

import sys
from concurrent.futures import ThreadPoolExecutor

import stripe

host, port, orders = sys.argv[1], sys.argv[2], int(sys.argv[3])
client = stripe.StripeClient(
    "sk_test_selfsame",
    base_addresses={"api": f"http://{host}:{port}"},
    max_network_retries=5,
)


def charge(order):
    params = {"amount": 2000, "currency": "eur", "source": "tok_visa"}
    return client.v1.charges.create({**params, "description": f"order-{order}"}).id


with ThreadPoolExecutor(orders) as pool:
    print(*pool.map(charge, range(orders)), sep="\n")
