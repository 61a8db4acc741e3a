import dflearn as dfl

problem = dfl.problems.ShortestPath(5, 5, seed=1)  # a grid whose edge costs depend on ten features
data = dfl.label(problem.generate(2000), problem.solver())  # costs, and the best path of each row
train, _, test = data.split(seed=1)
for loss in (dfl.losses.MSE(), dfl.losses.SCE(dfl.Smoothed(problem.program, mu=1.0))):
    model = dfl.models.Linear(10, problem.program.p)  # any torch module will do
    dfl.fit(model, loss, train)
    regret = dfl.evaluate(model, problem, test).ratio_of_sums
    print(f"{type(loss).__name__}: paths cost {regret:.1%} more than the best ones")
